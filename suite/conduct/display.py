"""What a session shows: the plan as a table, a live line or plain lines, and a summary."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from suite.bundle.record import Record
from suite.conduct.examine import Diagnosis
from suite.conduct.outcome_line import outcome_line
from suite.conduct.plan import Plan
from suite.conduct.progress import CrowdView, LiveView, PlainView
from suite.conduct.request import RunState
from suite.conduct.session import Summary, View
from suite.conduct.versus import Versuses
from suite.report.headline import rows as headline_rows
from suite.report.model import ReportModel
from suite.spec.manifest import Manifest
from suite.stats.compare import DEFAULT_MARGIN

PIPE_COLUMNS = 160
HEADLINE_ROWS = 40
_EQUIVALENCE = {True: f", equal within {DEFAULT_MARGIN:.0%}", False: "", None: " (2 runs a side are needed)"}


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


def _console() -> Console:
    """As wide as the terminal; in a pipe or a log wide enough that no cell is cut."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS)


def print_plan(plan: Plan, rows: Sequence[dict]) -> None:
    """The dry run: every run in order with what the results folder holds of it, then what cannot be run."""
    console = _console()
    table = Table(box=box.SIMPLE_HEAD, title=f"plan {plan.id}: {len(rows)} runs", title_justify="left")
    for name in ("run", "backend", "size", "ranks", "layout", "scaling", "samples", "repeat", "state"):
        table.add_column(name, justify="right" if name in ("ranks", "samples", "repeat") else "left")
    for row in rows:
        table.add_row(*(escape(str(value)) for value in row.values()))
    console.print(table)
    for entry in plan.skipped:
        console.print(
            f"not possible: {entry.backend} {escape(entry.size)} on {entry.ranks} ranks: {escape(entry.reason)}"
        )
    for note in plan.notes:
        console.print(f"note: {note}")
    counts = Counter(row["state"] for row in rows)
    console.print(", ".join(f"{count} {state}" for state, count in sorted(counts.items())) + "; nothing was run")


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


def print_diagnosis(diagnosis: Diagnosis) -> None:
    """The checks line by line, then which sizes one device can hold at the least."""
    marks = {"ok": "ok     ", "warning": "warning", "missing": "missing"}
    for check in diagnosis.checks:
        print(f"{marks[check.state]}  {check.name:<20} {check.found}")
        if check.advice:
            print(f"{'':9}{'':20} -> {check.advice}")
    print("memory floor of one device (a lower bound; what does not fit needs more devices or offload):")
    for ladder in dict.fromkeys(fit.ladder for fit in diagnosis.fits):
        row = {fit.size: fit for fit in diagnosis.fits if fit.ladder == ladder}
        cells = [f"{name} {fit.floor_bytes / 2**30:.2f} GiB{'' if fit.fits else ' (no)'}" for name, fit in row.items()]
        print(f"  {ladder}: {', '.join(cells)}")


def print_headline(model: ReportModel) -> None:
    """The report's headline table on the terminal."""
    rows = headline_rows(model)
    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD)
    for name in rows[0]:
        table.add_column(name, justify="left" if name in ("size", "backend", "layout", "verdict") else "right")
    for row in rows[:HEADLINE_ROWS]:
        table.add_row(*(escape(str(value)) for value in row.values()))
    _console().print(table)
    if len(rows) > HEADLINE_ROWS:
        print(f"and {len(rows) - HEADLINE_ROWS} more rows in the report")


def print_versus(result: Versuses) -> None:
    """Row by row the second side's rate over the first's."""
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("size", "ranks", "backend", "layout", "runs", "ratio [95 %]", "verdict"):
        table.add_column(name, justify="right" if name in ("ranks", "runs", "ratio [95 %]") else "left")
    for row in result.rows:
        bounds = "" if row.low is None or row.high is None else f" [{row.low:.3f}, {row.high:.3f}]"
        verdict = row.verdict + _EQUIVALENCE[row.equivalent]
        runs = f"{row.runs_before} / {row.runs_after}"
        cells = (row.size, str(row.ranks), row.backend, row.layout, runs, f"{row.ratio:.3f}{bounds}", verdict)
        table.add_row(*(escape(cell) for cell in cells))
    _console().print(table)
    for side, names in (("first", result.only_before), ("second", result.only_after)):
        if names:
            print(f"only on the {side} side: {', '.join(names)}")


def print_comparison(before: Record, after: Record) -> None:
    """The first result and the new one, with their ratio. One run each: no verdict is drawn from it."""
    if before.throughput is None or after.throughput is None:
        print(f"before: {outcome_line(before)}\nnow:    {outcome_line(after)}")
        return
    ratio = after.throughput.samples_per_second.value / before.throughput.samples_per_second.value
    print(
        f"before: {outcome_line(before)}\nnow:    {outcome_line(after)}\nratio:  {ratio:.3f} (one run each: no verdict)"
    )
