"""`suite cancel`: end runs that a cluster has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import command


@command
def cancel(
    run: Annotated[list[str] | None, typer.Argument(help="run ids")] = None,
    everything: Annotated[bool, typer.Option("--all", help="all that were handed over and are not over")] = False,
    runs: Annotated[Path, typer.Option(help="results folder")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="print what was cancelled as JSON")] = False,
) -> None:
    """End runs that a cluster has. Their bundles can be collected: they say that they were interrupted."""
    from suite.cli.options.reading import print_json
    from suite.conduct.cluster.standing import chosen, standing
    from suite.launch.cluster.registry import find_scheduler
    from suite.spec.base import UsageError

    if bool(run) == everything:
        raise UsageError("name the runs to end, or say --all (`suite status` lists them)")
    ended = []
    for submission in chosen(runs, run or []):
        if run or standing(runs, submission).state.phase in ("pending", "running"):
            find_scheduler(submission.launcher).cancel(submission)
            ended.append(submission.run_id)
    if as_json:
        print_json({"cancelled": ended})
        return
    for run_id in ended:
        typer.echo(f"{run_id}: its end was asked for")
    if not ended:
        typer.echo("nothing is left to end")
