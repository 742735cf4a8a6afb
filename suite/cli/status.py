"""`suite status`: how far the runs are that were submitted to clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import command
from suite.cli.options import completion
from suite.spec.terminal import say


@command
def status(
    run: Annotated[
        list[str] | None,
        typer.Argument(help="run ids [default: all that were submitted]", autocompletion=completion.submitted_runs),
    ] = None,
    runs: Annotated[Path, typer.Option(help="results folder")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="print as JSON")] = False,
) -> None:
    """Show how far each run is that was submitted to a cluster, and why it waits."""
    from suite.cli.options.reading import print_json
    from suite.conduct.cluster.standing import chosen, standing

    rows = [standing(runs, submission) for submission in chosen(runs, run or [])]
    if as_json:
        print_json(
            [
                {
                    "run": row.submission.run_id,
                    "launcher": row.submission.launcher,
                    "submitted": row.submission.submitted,
                    "engine": row.submission.scheduler,
                    "collected": row.collected,
                    **row.state.model_dump(mode="json"),
                }
                for row in rows
            ]
        )
        return
    if not rows:
        say(f"nothing was submitted to a cluster from {runs}")
    for row in rows:
        say("  ".join(filter(None, (row.submission.run_id, row.state.word, row.state.detail))))
