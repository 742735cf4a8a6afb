"""`suite rerun`: run a manifest again and say whether its rate is reproduced."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import DONE, GATE_NOT_MET, INTERRUPTED, RUN_FAILED, command
from suite.cli.options.groups import takes_groups
from suite.cli.options.launchers import HERE, Where


@command
@takes_groups
def rerun(
    manifest: Annotated[Path, typer.Argument(help="a bundle, or its manifest.json")],
    repeats: Annotated[
        int | None,
        typer.Option(help="runs to make [default: as many as there are to compare with, at least 3, at most 10]"),
    ] = None,
    margin: Annotated[str, typer.Option(help="how far the rate may be off and still be reproduced, e.g. 3%")] = "5%",
    strict: Annotated[bool, typer.Option("--strict", help="exit 3 too where the runs cannot tell")] = False,
    extend: Annotated[bool, typer.Option("--extend", help="add to the last rerun until it has --repeats runs")] = False,
    runs: Annotated[Path, typer.Option(help="results folder for the new runs", rich_help_panel="Output")] = Path(
        "runs"
    ),
    where: Where = HERE,
    oversubscribe: Annotated[
        bool, typer.Option(help="allow more CPU ranks than cores", rich_help_panel="Where it runs")
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="print verdict, differences and new records as JSON", rich_help_panel="Output"),
    ] = False,
) -> int:
    """Run a manifest again, exactly as it was, and say whether its rate is reproduced.

    All repeats beside the named bundle are what the new runs are compared with. Exit 0: reproduced, or it cannot be
    told; 3: not reproduced; 1: a run failed.
    """
    from suite.cli.options.reading import print_json
    from suite.conduct.running.display import live_view, print_rerun
    from suite.conduct.running.ledger import Settings
    from suite.conduct.running.reproduction import rerun_outcome
    from suite.conduct.running.rerun import default_repeats, read_manifest, repeats_of, require_same_stack, rerun_plan
    from suite.conduct.running.session import run_plan
    from suite.spec.typed import share

    within = share("--margin", margin)
    wanted, _ = read_manifest(manifest)
    before, unread = repeats_of(wanted, manifest)
    machine, launcher = where.open(wanted.measure.device, (wanted.backend.name,))
    machine.require_room(wanted.layout.ranks, oversubscribe, threads=wanted.measure.threads_per_rank)
    require_same_stack(wanted, machine.stacks([wanted.backend.name])[wanted.backend.name])
    image = machine.images([wanted.backend.name])[wanted.backend.name]
    plan = rerun_plan(wanted, runs, repeats or default_repeats(before), image, extend)
    view = live_view(to_stderr=as_json)
    for line in unread:
        view.notice(line)
    summary = run_plan(plan, Settings(root=runs, python=machine.python), launcher, view)
    outcome = rerun_outcome(before, plan, runs, within)
    if as_json:
        print_json(outcome.document())
    else:
        print_rerun(outcome, runs)
    if summary.interrupted:
        return INTERRUPTED
    if summary.failed or summary.failed_before:
        return RUN_FAILED
    verdict = outcome.reproduction and outcome.reproduction.verdict
    missed = ("not reproduced", "cannot tell") if strict else ("not reproduced",)
    return GATE_NOT_MET if verdict in missed else DONE
