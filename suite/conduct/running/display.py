"""What a session shows: the plan as a table, a live line or plain lines, and a summary."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich import box
from rich.markup import escape
from rich.table import Table

from suite.bundle.record import Record
from suite.conduct.planning.plan import Plan
from suite.conduct.planning.request import RunState
from suite.conduct.running.outcome_line import outcome_line
from suite.conduct.running.progress import CrowdView, LiveView, PlainView
from suite.conduct.running.session import Summary, View
from suite.report.formatting.console import console
from suite.spec.manifest import Manifest


def plan_rows(runs: Sequence[tuple[Manifest, RunState]]) -> list[dict]:
    """The plan as data, in running order."""
    return [
        {
            "run": manifest.run.id,
            "backend": manifest.backend.name,
            "size": manifest.size.name,
            "ranks": manifest.layout.ranks,
            "layout": manifest.layout.label(),
            "scaling": manifest.workload.scaling,
            "samples": manifest.work.global_rollouts,
            "repeat": manifest.run.repeat,
            "state": state,
        }
        for manifest, state in runs
    ]


def print_plan(plan: Plan, rows: Sequence[dict]) -> None:
    """The dry run: every run in order with what the results folder holds of it, then what cannot be run."""
    screen = console()
    table = Table(box=box.SIMPLE_HEAD, title=f"plan {plan.id}: {len(rows)} runs", title_justify="left")
    for name in ("run", "backend", "size", "ranks", "layout", "scaling", "samples", "repeat", "state"):
        table.add_column(name, justify="right" if name in ("ranks", "samples", "repeat") else "left")
    for row in rows:
        table.add_row(*(escape(str(value)) for value in row.values()))
    screen.print(table)
    for entry in plan.skipped:
        screen.print(
            f"not possible: {entry.backend} {escape(entry.size)} on {entry.ranks} ranks: {escape(entry.reason)}"
        )
    for note in plan.notes:
        screen.print(f"note: {note}")
    counts = Counter(row["state"] for row in rows)
    screen.print(", ".join(f"{count} {state}" for state, count in sorted(counts.items())) + "; nothing was run")


def live_view(to_stderr: bool = False) -> View:
    """A live line on a terminal, plain lines elsewhere."""
    stream: TextIO = sys.stderr if to_stderr else sys.stdout
    return LiveView(stream) if stream.isatty() else PlainView(stream)


def crowd_view(to_stderr: bool = False) -> View:
    """Lines, for runs side by side."""
    return CrowdView(sys.stderr if to_stderr else sys.stdout)


def print_summary(summary: Summary, root: Path) -> None:
    """What was done, in a few lines, with the next command."""
    done = len(summary.done_before)
    if not (summary.measured or summary.failed or summary.interrupted or summary.left_by_budget or summary.busy):
        print(f"all {done + len(summary.failed_before)} runs are in {root} already; nothing to do")
    else:
        print(f"{len(summary.measured)} runs measured, {len(summary.failed)} failed, {done} were there already")
    if summary.failed_before:
        print(f"{len(summary.failed_before)} runs failed before and were left so; --retry-failed runs them again")
    if summary.left_by_budget:
        print(f"{len(summary.left_by_budget)} runs were not started for the budget; the same command goes on with them")
    if summary.interrupted:
        print("interrupted; the same command goes on")
    print(f"report: suite report {root} -o report.md")


def print_rerun(before: Record, after: Record) -> None:
    """The first result and the new one, with their ratio. One run each: no verdict is drawn from it."""
    if before.throughput is None or after.throughput is None:
        print(f"before: {outcome_line(before)}\nnow:    {outcome_line(after)}")
        return
    ratio = after.throughput.samples_per_second.value / before.throughput.samples_per_second.value
    print(
        f"before: {outcome_line(before)}\nnow:    {outcome_line(after)}\nratio:  {ratio:.3f} (one run each: no verdict)"
    )
