"""Before anything is started: what is expected of the runs, and a refusal of those that should not be."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from suite.spec.terminal import is_quiet, say

if TYPE_CHECKING:
    from pathlib import Path

    from suite.cli.options.work import Work
    from suite.conduct.planning.plan import Plan
    from suite.conduct.planning.preflight import Preflight
    from suite.conduct.planning.request import RunState
    from suite.spec.manifest import Manifest

NOTHING: Mapping[str, Any] = MappingProxyType({})


def still_to_do(states: Sequence[tuple[Manifest, RunState]], retry_failed: bool) -> set[str]:
    """Ids of the runs that a command would start."""
    left = {"to run", "interrupted", "damaged", *(["failed before"] if retry_failed else [])}
    return {manifest.run.id for manifest, state in states if state in left}


def refuse(found: Preflight, runs: Collection[str], force: bool) -> None:
    """Raise UsageError where one of these runs is not expected to fit or to end in time; with ``force`` only warn."""
    from suite.spec.base import UsageError

    refusals = found.of(runs).refusals
    if force:
        for line in refusals:
            warn("warning: ", line)
        return
    if len(refusals) == 1:
        raise UsageError(f"{refusals[0]}; --force runs it all the same")
    for line in refusals:
        warn("refused: ", line)
    if refusals:
        raise UsageError(f"{len(refusals)} rows are refused; leave them out or change them, or run them with --force")


def show_plan(
    plan: Plan,
    found: Preflight,
    root: Path,
    retry_failed: bool,
    work: Work,
    as_json: bool,
    elsewhere: Sequence[str] = (),
    more: Mapping[str, Any] = NOTHING,
) -> int:
    """The dry run of every launcher; ``elsewhere``: what of the plan this machine cannot run; ``more``: of the JSON.

    Raises as ``refuse``.
    """
    from suite.cli.exits import DONE
    from suite.cli.options.reading import print_json
    from suite.conduct.running import display
    from suite.conduct.running.session import states

    now = states(plan, root)
    to_do = still_to_do(now, retry_failed)
    rows, left = display.plan_rows(now, found), found.of(to_do)
    if as_json:
        skipped = [entry.model_dump() for entry in plan.skipped]
        body = {"plan": plan.id, "runs": rows, "skipped": skipped, "notes": plan.notes, "expected": left.totals()}
        print_json({**body, "not_here": elsewhere, **more})
    else:
        display.print_plan(plan, rows, left)
    for line in elsewhere:
        warn("not on this machine: ", line)
    refuse(found, to_do, work.force)
    return DONE


def warn(start: str, line: str) -> None:
    """A line on standard error, broken at words where that is a terminal; with -q no note and no warning."""
    from suite.report.formatting.width import terminal_columns, wrapped

    if not (is_quiet() and start in ("note: ", "warning: ")):
        say("\n".join(wrapped(line, terminal_columns(sys.stderr), start, "  ")), err=True)
