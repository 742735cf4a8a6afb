"""`suite run`: measure a cross product of backends, sizes, ranks and layouts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from suite.cli.exits import DONE, INTERRUPTED, RUN_FAILED, command
from suite.cli.options.groups import takes_groups
from suite.cli.options.launchers import HERE, Where
from suite.cli.options.work import USUAL_WORK, Names, Work


@command
@takes_groups
def run(
    context: typer.Context,
    work: Work = USUAL_WORK,
    ranks: Annotated[
        Names, typer.Option(envvar="SUITE_RANKS", help="number of ranks, or all; repeat for several [default: 1]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda [default: auto, or cuda for a preset]")] = None,
    budget: Annotated[str | None, typer.Option(help="start no further run after this long, e.g. 20m")] = None,
    runs: Annotated[Path, typer.Option(help="results folder")] = Path("runs"),
    where: Where = HERE,
    parallel: Annotated[
        int, typer.Option(min=1, help="docker: so many runs at once, on devices of their own; they disturb each other")
    ] = 1,
    retry_failed: Annotated[bool, typer.Option(help="run again what failed before")] = False,
    oversubscribe: Annotated[bool, typer.Option(help="allow more CPU ranks than cores")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the plan and run nothing")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the outcome as JSON")] = False,
) -> int:
    """Measure: every backend x size x ranks x layout, interleaved, each repeat in fresh processes.

    What the results folder already holds is skipped; an interrupted run is done again.
    """
    from suite.cli.options.reading import print_json, rank_counts, seconds
    from suite.conduct.planning.plan import make_joint_plan
    from suite.conduct.planning.prediction import fit_warnings
    from suite.conduct.running import display
    from suite.conduct.running.session import Settings, run_plan, states
    from suite.conduct.running.side_by_side import require_containers, run_side_by_side
    from suite.spec.base import UsageError

    wanted = device or ("cuda" if work.preset else "auto")
    machine, launcher = where.open(wanted, work.backends, planning=dry_run)
    require_containers(machine, parallel)
    source = context.get_parameter_source("ranks")
    if work.preset and source is not None and source.name == "ENVIRONMENT":
        ranks = None  # a default of this machine, where the preset has its own
    requests = work.requests(machine, rank_counts(ranks or [], machine.max_ranks))
    largest = max(requests, key=lambda request: (request.nodes, *request.ranks))
    needs = (max(largest.ranks), largest.nodes, largest.backends)
    elsewhere = list(machine.lacks(*needs) if dry_run and machine.device == "cuda" else ())
    if not elsewhere:
        machine.require_room(max(largest.ranks), oversubscribe, largest.nodes)
    settings = Settings(
        root=runs,
        python=machine.python,
        budget_seconds=seconds(budget) if budget else None,
        retry_failed=retry_failed,
    )
    stacks = machine.found_stacks if elsewhere else machine.stacks
    plan = make_joint_plan(requests, stacks(largest.backends), machine.images(largest.backends))
    for line in fit_warnings(plan.manifests, machine.device_name):
        typer.echo(f"warning: {line}", err=True)
    try:
        machine.require_memory(plan.manifests)
    except UsageError as error:
        if not dry_run:
            raise
        elsewhere.append(str(error))
    if dry_run:
        rows = display.plan_rows(states(plan, runs))
        if as_json:
            skipped = [entry.model_dump() for entry in plan.skipped]
            print_json({"plan": plan.id, "runs": rows, "skipped": skipped, "not_here": elsewhere})
        else:
            display.print_plan(plan, rows)
        for line in elsewhere:
            typer.echo(f"not on this machine: {line}", err=True)
        return DONE
    if parallel > 1:
        summary = run_side_by_side(plan, settings, machine, launcher, display.crowd_view(as_json), parallel)
    else:
        summary = run_plan(plan, settings, launcher, display.live_view(to_stderr=as_json))
    if as_json:
        print_json({"plan": plan.id, **summary.model_dump(mode="json")})
    else:
        display.print_summary(summary, runs)
    if summary.interrupted:
        return INTERRUPTED
    return RUN_FAILED if summary.failed or summary.failed_before else DONE
