"""`suite rerun`: run a manifest again and set the result beside the first one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import DONE, INTERRUPTED, RUN_FAILED, command
from suite.cli.options.groups import takes_groups
from suite.cli.options.launchers import HERE, Where


@command
@takes_groups
def rerun(
    manifest: Annotated[Path, typer.Argument(help="a bundle, or its manifest.json")],
    runs: Annotated[Path, typer.Option(help="results folder for the new run", rich_help_panel="Output")] = Path("runs"),
    where: Where = HERE,
    oversubscribe: Annotated[
        bool, typer.Option(help="allow more CPU ranks than cores", rich_help_panel="Where it runs")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="print the new record as JSON", rich_help_panel="Output")
    ] = False,
) -> int:
    """Run a manifest once more, exactly as it was, and compare with the record beside it."""
    from suite.conduct.running.display import live_view, print_rerun
    from suite.conduct.running.rerun import next_repeat, read_manifest, require_same_stack
    from suite.conduct.running.session import run_one

    wanted, before = read_manifest(manifest)
    machine, launcher = where.open(wanted.measure.device, (wanted.backend.name,))
    machine.require_room(wanted.layout.ranks, oversubscribe, threads=wanted.measure.threads_per_rank)
    require_same_stack(wanted, machine.stacks([wanted.backend.name])[wanted.backend.name])
    repeat = next_repeat(wanted, runs, machine.images([wanted.backend.name])[wanted.backend.name])
    where.warn_if_busy(machine, launcher)
    record = run_one(repeat, runs, launcher, machine.python, live_view(to_stderr=as_json))
    if as_json:
        typer.echo(record.model_dump_json(by_alias=True, indent=2))
    else:
        typer.echo(f"bundle: {runs / repeat.run.id}")
        if before is not None:
            print_rerun(before, record)
    if record.status == "interrupted":
        return INTERRUPTED
    return DONE if record.status == "ok" else RUN_FAILED
