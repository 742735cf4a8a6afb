"""`suite render`: the files that a cluster's engine takes, without handing them over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import command
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
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="folder for the scripts [default: print them]", rich_help_panel="Output"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print scripts and runs as JSON", rich_help_panel="Output")
    ] = False,
) -> None:
    """Render batch scripts. With -o they can be handed to sbatch as they are, and `suite collect` finds their runs."""
    from suite.cli.options.reading import print_json
    from suite.conduct.cluster.slurm import write_scripts

    made, found = queue.scripts(work, nodes)
    paths = [] if output is None else write_scripts(made, output, nodes.runs)
    if as_json:
        rows = [
            {"name": each.name, "runs": [run.run_id for run in each.submissions], "text": each.text} for each in made
        ]
        left = found.model_dump(mode="json", exclude={"manifests"})
        print_json({"scripts": rows, "files": [str(path) for path in paths], **left})
        return
    if output is None:
        for each in made:
            typer.echo(each.text, nl=False)
        return
    for path in paths:
        typer.echo(f"sbatch {path}")


@command
@takes_groups
def kubernetes(
    work: Work = USUAL_WORK,
    nodes: Nodes = ANY_NODES,
    pods: Pods = USUAL_PODS,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="folder for the YAML [default: print it]", rich_help_panel="Output"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="print YAML and runs as JSON", rich_help_panel="Output")
    ] = False,
) -> None:
    """Render Kubernetes objects. With -o they can be applied as they are, and `suite collect` finds their runs."""
    from suite.cli.options.reading import print_json
    from suite.conduct.cluster.kubernetes import rendered, write_objects

    settings = pods.settings()
    submissions, found = pods.submissions(work, nodes)
    made = rendered(submissions, settings)
    paths = [] if output is None else write_objects(made, settings, pods.context, output, nodes.runs)
    if as_json:
        rows = [{"run": each.submission.run_id, "text": each.text} for each in made]
        left = found.model_dump(mode="json", exclude={"manifests"})
        print_json({"objects": rows, "files": [str(path) for path in paths], **left})
        return
    if output is None:
        typer.echo("---\n".join(each.text for each in made), nl=False)
        return
    for path in paths:
        typer.echo(f"kubectl apply -f {path}")
