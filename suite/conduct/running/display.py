"""What a session shows: a live line or plain lines, and a summary."""

import sys
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from suite.conduct.planning.plan import Plan
from suite.conduct.running.outcome_line import doubt, outcome_line
from suite.conduct.running.progress import LiveView, PlainView, View
from suite.conduct.running.session import Summary
from suite.conduct.running.state import ended
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted, interval
from suite.spec.terminal import is_quiet, say
from suite.spec.width import terminal_columns, wrapped

if TYPE_CHECKING:
    from suite.conduct.running.reproduction import RerunOutcome
    from suite.report.facts.model import ReportModel

# What shows results is imported when there are some: a run need not wait for it to start.
RATE = "samples/s [95 %]"


def session_view(to_stderr: bool, is_crowd: bool) -> View:
    """A live line on a terminal, plain lines elsewhere and for runs side by side; nothing with -q."""
    stream = StringIO() if is_quiet() else sys.stderr if to_stderr else sys.stdout
    return LiveView(stream) if stream.isatty() and not is_crowd else PlainView(stream, is_crowd)


def results(plan: Plan, root: Path) -> "ReportModel":
    """The report of the plan's runs that have ended under ``root``, of these alone."""
    from suite.bundle.derive import record_of
    from suite.report.facts.entry import Entry
    from suite.report.facts.model import build

    there = ended(plan, root, record_of)
    return build([Entry(manifest, record, bundle.path.as_posix()) for manifest, bundle, record in there])


def print_summary(summary: Summary, plan: Plan, root: Path, reached: Iterable[str] = ()) -> None:
    """What was done, who is faster, the result of each row, what a stopping rule ``reached``, and the next command."""
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
        lines.append(f"not run: {counted(len(summary.failed_before), 'run')} that failed before; add --retry-failed")
    if summary.left_by_budget:
        left = counted(len(summary.left_by_budget), "run")
        lines.append(f"the budget is spent and {left} left; run the same command to continue")
    if summary.interrupted:
        lines.append("interrupted; run the same command to continue")
    if summary.measured or summary.failed or summary.done_before or summary.failed_before:
        lines.append(f"report: suite report {quote(str(root))} -o report.md")
    for line in lines:
        say("\n".join(wrapped(line, terminal_columns(), rest="  ")))


def print_rerun(outcome: "RerunOutcome", root: Path) -> None:
    """The rates of before and now, their ratio, the verdict, and what differs around the runs."""
    from suite.conduct.running.reproduction import measured
    from suite.spec.grid import Column, grid_lines
    from suite.stats.intervals import Interval, pooled_rate

    width = terminal_columns()
    sides = (("before", outcome.before), ("now", outcome.after))
    for _, records in sides:
        for record in records:
            told = outcome_line(record) if record.throughput is None else doubt(record)
            if told:
                say("\n".join(wrapped(told, width, first=f"{record.run.id}: ", rest="  ")))
    rows = [(name, measured(records, outcome.with_suspect).runs, records) for name, records in sides if records]
    columns = [
        Column("", [name for name, _, _ in rows], left=True),
        Column("runs", [f"{len(runs)} of {len(records)}" for _, runs, records in rows]),
        Column(RATE, [interval(pooled_rate(runs)) if runs else "no rate" for _, runs, _ in rows]),
    ]
    say("\n".join(grid_lines(columns, width)))
    found = outcome.reproduction
    if found is not None:
        if found.ratio is not None:
            say(f"ratio:   {interval(Interval(found.ratio, found.low, found.high))}, now over before (95 %)")
        for each in outcome.ratios:
            bounds = interval(Interval(each.ratio, each.low, each.high))
            told = f"{each.before:.4g} before, {each.now:.4g} now: {bounds}, {each.verdict}"
            say("\n".join(wrapped(told, width, first=f"to {each.against}: ", rest="  ")))
        say("\n".join(wrapped(outcome.sentence(), width, first="verdict: ")))
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
