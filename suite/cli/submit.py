"""`suite submit`: hand runs to a cluster; `suite collect` brings their bundles home."""

from __future__ import annotations

from typing import Annotated

import typer

from suite.cli.exits import DONE, RUN_FAILED, command
from suite.cli.options.cluster import ANY_NODES, Nodes
from suite.cli.options.groups import takes_groups
from suite.cli.options.kubernetes import USUAL_PODS, Pods
from suite.cli.options.slurm import USUAL_QUEUE, Queue
from suite.cli.options.work import USUAL_WORK, Work


@command
@takes_groups
def slurm(
    work: Work = USUAL_WORK,
    nodes: Nodes = ANY_NODES,
    queue: Queue = USUAL_QUEUE,
    as_json: Annotated[bool, typer.Option("--json", help="print the jobs as JSON", rich_help_panel="Output")] = False,
) -> None:
    """Submit batch jobs. What the results folder or the cluster already has is skipped."""
    from suite.cli.options.reading import print_json
    from suite.conduct.cluster.slurm import Script, hand_over

    made, found = queue.scripts(work, nodes)
    jobs: dict[str, str] = {}

    def on_job(job: str, script: Script) -> None:
        for each in script.submissions:
            index = each.scheduler["index"]
            jobs[each.run_id] = job if index is None else f"{job}_{index}"
            if not as_json:
                typer.echo(f"{each.run_id}: job {jobs[each.run_id]}")

    hand_over(made, nodes.runs, on_job)
    left = found.model_dump(mode="json", exclude={"manifests"})
    if as_json:
        print_json({"jobs": jobs, **left})
        return
    for state, ids in left.items():
        if ids:
            typer.echo(f"{state.replace('_', ' ')}, so not submitted: {', '.join(ids)}")
    typer.echo(f"bring them home: suite collect --wait --runs {nodes.runs}")


@command
@takes_groups
def kubernetes(
    work: Work = USUAL_WORK,
    nodes: Nodes = ANY_NODES,
    pods: Pods = USUAL_PODS,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            help="submit all runs at once and come back; suite collect brings them home",
            rich_help_panel="Output",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the outcome as JSON", rich_help_panel="Output")
    ] = False,
) -> int:
    """Submit runs to Kubernetes, one after the other, and bring their bundles home. Exit 1 when one failed.

    Ctrl-C leaves the run in the cluster. What the results folder or the cluster already has is skipped.
    """
    from suite.cli.options.reading import print_json
    from suite.conduct.cluster.kubernetes import hand_over
    from suite.conduct.cluster.standing import Standing, bring_home, wait_until_over
    from suite.conduct.running.outcome_line import outcome_line
    from suite.launch.kubernetes.client import connect

    settings = pods.settings()
    cluster = connect(pods.context, pods.namespace)
    submissions, found = pods.submissions(work, nodes)

    def tell(text: str) -> None:
        typer.echo(text, err=as_json)

    def tell_state(now: Standing) -> None:
        tell(f"    {now.state.word}: {now.state.detail}".rstrip(": "))

    statuses: dict[str, str] = {}
    for submission in submissions:
        handed = hand_over(cluster, submission, settings, nodes.runs)
        tell(f"{handed.run_id}: {'/'.join(handed.scheduler['objects'][-1])} in namespace {cluster.namespace}")
        if detach:
            statuses[handed.run_id] = "submitted"
            continue
        wait_until_over(nodes.runs, handed, tell_state)
        record = bring_home(nodes.runs, handed)
        statuses[handed.run_id] = record.status
        tell(f"    {outcome_line(record)}")
    left = found.model_dump(mode="json", exclude={"manifests"})
    if as_json:
        print_json({"runs": statuses, "namespace": cluster.namespace, **left})
    else:
        for state, ids in left.items():
            if ids:
                typer.echo(f"{state.replace('_', ' ')}, so not submitted: {', '.join(ids)}")
        if detach:
            typer.echo(f"bring them home: suite collect --wait --runs {nodes.runs}")
    return DONE if set(statuses.values()) <= {"ok", "submitted"} else RUN_FAILED
