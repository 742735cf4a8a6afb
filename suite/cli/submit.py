"""`suite submit`: hand runs to a cluster; `suite collect` brings their bundles home."""

from __future__ import annotations

from typing import Annotated

import typer

from suite.cli.cluster_options import ANY_NODES, Nodes
from suite.cli.exits import command
from suite.cli.groups import takes_groups
from suite.cli.slurm_options import USUAL_QUEUE, Queue
from suite.cli.work import USUAL_WORK, Work

app = typer.Typer(help="Hand runs to a cluster's engine.", no_args_is_help=True)


@app.command("slurm")
@command
@takes_groups
def slurm(
    work: Work = USUAL_WORK,
    nodes: Nodes = ANY_NODES,
    queue: Queue = USUAL_QUEUE,
    as_json: Annotated[bool, typer.Option("--json", help="print the jobs as JSON")] = False,
) -> None:
    """Submit batch jobs. What the results folder or the cluster already has is skipped."""
    from suite.cli.options import print_json
    from suite.conduct.slurm_runs import Script, hand_over

    made, found = queue.scripts(work, nodes)
    jobs: dict[str, str] = {}

    def on_job(job: str, script: Script) -> None:
        for each in script.submissions:
            index = each.engine["index"]
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
