"""What a session shows: the plan as a table, a live line or plain lines, and a summary."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich import box
from rich.table import Table

from suite.conduct.planning.plan import Plan
from suite.conduct.planning.preflight import Preflight
from suite.conduct.planning.request import RunState
from suite.conduct.running.ledger import View
from suite.conduct.running.outcome_line import doubt, outcome_line
from suite.conduct.running.progress import CrowdView, LiveView, PlainView
from suite.conduct.running.session import Summary
from suite.planner.grid import Column, grid_lines
from suite.report.formatting.console import cell, console
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import GIB, counted, gib, interval, number, span
from suite.report.formatting.width import terminal_columns, wrapped
from suite.spec.manifest import Manifest
from suite.spec.terminal import is_quiet, say
from suite.stats.intervals import Interval, pooled_rate

if TYPE_CHECKING:
    from suite.conduct.running.reproduction import RerunOutcome

# What shows results is imported when there are some: a run need not wait for it to start.
RATE = "samples/s [95 %]"


def plan_rows(runs: Sequence[tuple[Manifest, RunState]], found: Preflight) -> list[dict]:
    """The plan as data, in running order, each run with what is expected of it."""
    rows = {row.run: row for row in found.rows}
    return [
        {
            "run": manifest.run.id,
            "backend": manifest.backend.label,
            "size": manifest.size.name,
            "ranks": manifest.layout.ranks,
            "layout": manifest.layout.label(),
            "scaling": manifest.workload.scaling,
            "samples": manifest.work.global_rollouts,
            "repeat": manifest.run.repeat,
            "state": state,
            **rows[manifest.run.id].model_dump(exclude={"run"}),
        }
        for manifest, state in runs
    ]


#: what a narrow terminal leaves out of the plan, in this order: a run's id holds all but the scaling
_FOLDED = ("repeat", "ranks", "size", "backend", "scaling")


def print_plan(plan: Plan, rows: Sequence[dict], found: Preflight) -> None:
    """The dry run: every run in order with what the results folder holds of it, then what cannot be run, and what is
    expected of each configuration. ``found``: of the runs that are still to be done."""
    screen = console()
    names = ["run", "backend", "size", "ranks", "layout", "scaling", "samples", "repeat", "state"]
    heading = f"plan {plan.id}: {counted(len(rows), 'run')}"
    table = _plan_table(names, rows, heading)
    for name in _FOLDED:
        if screen.measure(table, options=screen.options.update(width=1000)).maximum <= screen.width:
            break
        if name != "scaling" or len({row["scaling"] for row in rows}) == 1:
            names.remove(name)
            table = _plan_table(names, rows, heading)
    screen.print(table)
    for entry in plan.skipped:
        screen.print(f"not possible: {entry.backend} {cell(entry.size)} on {entry.ranks} ranks: {cell(entry.reason)}")
    for note in plan.notes:
        screen.print(f"note: {cell(note)}", highlight=False)
    for line in _expectations(rows, found):
        say(line)
    counts = Counter(row["state"] for row in rows)
    screen.print(", ".join(f"{count} {state}" for state, count in sorted(counts.items())) + "; nothing was run")


def _expectations(rows: Sequence[dict], found: Preflight) -> Iterator[str]:
    """What each configuration should need, one line for all its repeats, and the whole plan."""

    width = terminal_columns()
    alike: dict[tuple, list[dict]] = {}
    for row in rows:
        if row["expected"]:
            configuration = tuple(row[name] for name in ("backend", "size", "ranks", "layout", "limit_seconds"))
            alike.setdefault(configuration, []).append(row)
    if alike:
        firsts = [(each[0], each[0]["expected"], len(each)) for each in alike.values()]
        costs = [number(expected["cost"], 2) for _, expected, _ in firsts]
        columns = [
            Column("expected of each run", [f"{row['backend']} {row['size']} {row['layout']}" for row, _, _ in firsts]),
            Column("runs", [str(count) for _, _, count in firsts], rank=3),
            Column("iterations", [str(row["iterations"]) for row, _, _ in firsts], rank=2),
            Column("GiB", [_of_memory(expected) for _, expected, _ in firsts]),
            Column("s/iter", [number(expected["iteration_seconds"], 2) for _, expected, _ in firsts]),
            Column("time", [_of_limit(row) for row, _, _ in firsts]),
            Column("limit", [span(row["limit_seconds"]) for row, _, _ in firsts]),
            Column("GPU-h", [number(expected["gpu_hours"], 2) for _, expected, _ in firsts]),
            *([Column("cost", costs)] if found.price is not None else []),
        ]
        yield ""
        yield from grid_lines(columns, width)
        yield ""
    for line in found.summary():
        yield from wrapped(line, width, rest="  ")


def _of_memory(expected: dict) -> str:
    mark = " tight" if expected["tight"] else "" if expected["fits"] else " !"
    return f"{gib(expected['memory_bytes'])} of {expected['capacity_bytes'] / GIB:.0f}{mark}"


def _of_limit(row: dict) -> str:
    seconds: float = row["expected"]["run_seconds"]
    return span(seconds) + (" !" if seconds > row["limit_seconds"] else "")


def _plan_table(names: Sequence[str], rows: Sequence[dict], heading: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=heading, title_justify="left", pad_edge=False)
    for name in names:
        right = name in ("ranks", "samples", "repeat")
        table.add_column(name, justify="right" if right else "left", no_wrap=name in ("run", "state"), overflow="fold")
    for row in rows:
        table.add_row(*(cell(row[name]) for name in names))
    return table


def live_view(to_stderr: bool = False) -> View:
    """A live line on a terminal, plain lines elsewhere."""
    stream = _stream(to_stderr)
    return LiveView(stream) if stream.isatty() else PlainView(stream)


def crowd_view(to_stderr: bool = False) -> View:
    """Lines, for runs side by side."""
    return CrowdView(_stream(to_stderr))


def _stream(to_stderr: bool) -> TextIO:
    """Where a session is shown at work; nowhere with -q."""
    return StringIO() if is_quiet() else sys.stderr if to_stderr else sys.stdout


def print_summary(summary: Summary, plan: Plan, root: Path, reached: Iterable[str] = ()) -> None:
    """What was done, in a few lines, who is faster and the result of each row, and the next command.

    ``reached``: what a stopping rule came to.
    """
    from suite.conduct.running.results import results
    from suite.report.terminal import print_answer, print_headline

    done = len(summary.done_before)
    model = results(plan, root)
    if model.rows:
        print_answer(model)
        print_headline(model)
    lines = [*map(visible, model.caveats), *reached]
    if not (summary.measured or summary.failed or summary.interrupted or summary.left_by_budget or summary.busy):
        count = done + len(summary.failed_before)
        lines.append(f"{root} already holds {'the run' if count == 1 else f'all {count} runs'}; nothing to do")
    else:
        before = f", {done} measured before" if done else ""
        lines.append(f"{counted(len(summary.measured), 'run')} measured, {len(summary.failed)} failed{before}")
    if summary.failed_before:
        count = len(summary.failed_before)
        lines.append(f"{counted(count, 'run')} failed before and {_were(count)} not run; --retry-failed runs them")
    if summary.left_by_budget:
        count = len(summary.left_by_budget)
        lines.append(
            f"{counted(count, 'run')} {_were(count)} not started because the budget was spent; "
            "run the same command to continue"
        )
    if summary.interrupted:
        lines.append("interrupted; run the same command to continue")
    if summary.measured or summary.failed or summary.done_before or summary.failed_before:
        lines.append(f"report: suite report {root} -o report.md")
    for line in lines:
        say("\n".join(wrapped(line, terminal_columns(), rest="  ")))


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def print_rerun(outcome: RerunOutcome, root: Path) -> None:
    """The rates of before and now, their ratio, the verdict, and what differs around the runs."""
    from suite.conduct.running.reproduction import measured_runs

    width = terminal_columns()
    sides = (("before", outcome.before), ("now", outcome.after))
    for _, records in sides:
        for record in records:
            told = outcome_line(record) if record.throughput is None else doubt(record)
            if told:
                say("\n".join(wrapped(told, width, first=f"{record.run.id}: ", rest="  ")))
    rows = [(name, measured_runs(records, outcome.with_suspect), records) for name, records in sides if records]
    columns = [
        Column("", [name for name, _, _ in rows], left=True),
        Column("runs", [f"{len(runs)} of {len(records)}" for _, runs, records in rows]),
        Column(RATE, [interval(pooled_rate(runs)) if runs else "no rate" for _, runs, _ in rows]),
    ]
    say("\n".join(grid_lines(columns, width)))
    found = outcome.reproduction
    if found is not None:
        if found.ratio is not None:
            bounds = Interval(found.ratio, found.low, found.high)
            say(f"ratio:   {interval(bounds)}, now over before (95 %)")
        say("\n".join(wrapped(found.sentence(), width, first="verdict: ")))
    if outcome.differences:
        say("what differs around the runs:")
        columns = [
            Column("", [each.name for each in outcome.differences], left=True),
            Column("before", [each.before for each in outcome.differences], left=True),
            Column("now", [each.after for each in outcome.differences], left=True),
        ]
        say("\n".join(grid_lines(columns, width)))
    elif found is not None:
        say("environment: nothing known differs")
    say(f"bundles: {root}")
