"""`suite rerun`: run a manifest again and set the result beside the first one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.exits import DONE, INTERRUPTED, RUN_FAILED, command
from suite.cli.options.groups import takes_groups
from suite.cli.options.launchers import HERE, Where

if TYPE_CHECKING:
    from suite.launch.outcome import Launcher
    from suite.spec.manifest import Manifest
    from suite.spec.stopping import Stopping


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
    """Run a manifest once more, exactly as it was, and compare with the record beside it.

    A manifest of a plan that asked for a precision is repeated until that is reached.
    """
    from suite.conduct.running.display import live_view, print_rerun
    from suite.conduct.running.rerun import next_repeat, read_manifest, require_same_stack
    from suite.conduct.running.session import run_one

    wanted, before = read_manifest(manifest)
    machine, launcher = where.open(wanted.measure.device, (wanted.backend.name,))
    machine.require_room(wanted.layout.ranks, oversubscribe, threads=wanted.measure.threads_per_rank)
    require_same_stack(wanted, machine.stacks([wanted.backend.name])[wanted.backend.name])
    repeat = next_repeat(wanted, runs, machine.images([wanted.backend.name])[wanted.backend.name])
    if repeat.run.stopping is not None:
        return _by_rule(repeat, repeat.run.stopping, runs, launcher, machine.python, as_json)
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


def _by_rule(first: Manifest, rule: Stopping, runs: Path, launcher: Launcher, python: str, as_json: bool) -> int:
    """New runs of the row, as many as its own rule asks for; those that the results folder has do not count."""
    from functools import partial

    from suite.cli.options.reading import print_json
    from suite.conduct.planning.plan import Plan
    from suite.conduct.running.display import live_view, print_summary
    from suite.conduct.running.ledger import Settings
    from suite.conduct.running.pursuit import Pursuit
    from suite.conduct.running.reached import follow, lines
    from suite.conduct.running.session import run_plan

    view = live_view(to_stderr=as_json)
    plan = Plan(id=first.run.plan, manifests=(first,), skipped=(), notes=())
    work_on = partial(run_plan, settings=Settings(root=runs, python=python), launcher=launcher, view=view)
    plan, summary, found = follow(Pursuit([first], rule, runs, view), plan, work_on)
    if as_json:
        told = {"runs": [manifest.run.id for manifest in plan.manifests], "precision": found.model_dump(mode="json")}
        print_json({**summary.model_dump(mode="json"), **told})
    else:
        print_summary(summary, plan, runs, lines(found))
    if summary.interrupted:
        return INTERRUPTED
    return RUN_FAILED if summary.failed else DONE
