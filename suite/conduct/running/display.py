"""What a session shows: a live line or plain lines at work, then a summary.

From the first iteration on nothing is drawn but when an event arrives: a clock that ticks on the screen would disturb
what is measured. One ticks only while a stack starts and loads its model, every few seconds, and stops before that.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from suite.bundle.record import Record
from suite.conduct.planning.plan import Plan
from suite.conduct.running.outcome_line import doubt, outcome_line
from suite.conduct.running.state import ended
from suite.report.formatting.escape import visible
from suite.report.formatting.numbers import counted, interval
from suite.spec.manifest import Manifest
from suite.spec.phases import TIMED, TIMED_NAMES
from suite.spec.terminal import is_quiet, plain, say
from suite.spec.width import terminal_columns, wrapped

if TYPE_CHECKING:
    from suite.conduct.running.reproduction import RerunOutcome
    from suite.conduct.running.session import Summary
    from suite.report.facts.model import ReportModel

REDRAW_SECONDS = 0.25
LOADING_REDRAW_SECONDS = 2.0
_BAR_COLUMNS = 20


def duration(seconds: float) -> str:
    """``1:02:03``."""
    return str(timedelta(seconds=round(seconds)))


def row_name(manifest: Manifest) -> str:
    """What its row is called where several are told of."""
    ranks = manifest.layout.ranks
    layout = manifest.layout.label()
    return f"{manifest.backend.label} {manifest.size.name} on {ranks} rank{'s' if ranks > 1 else ''} ({layout})"


def title(manifest: Manifest) -> str:
    """The run in a few words."""
    return f"{row_name(manifest)}, repeat {manifest.run.repeat}"


class View:
    """What a session reports to while it works: a line when a run begins and one when it ends, for logs and pipes."""

    def __init__(self, stream: TextIO, is_crowd: bool = False) -> None:
        """``is_crowd``: of runs that go on at the same time, so that each line names its run."""
        self._stream, self._is_crowd = stream, is_crowd
        self._total, self._number, self._about = 0, 0, False

    def begin(self, total: int, done: int) -> None:
        self._total, self._number = total, done

    def planned(self, total: int) -> None:
        """So many runs in all, by an estimate that changes as runs end; the time that is left is one too."""
        self._total, self._about = total, True

    def run_started(self, manifest: Manifest, seconds_left: float | None) -> None:
        self._number += 1
        about, mark = ("about ", "~") if self._about else ("", "")
        left = f", {about}{duration(seconds_left)} left" if seconds_left is not None else ""
        self._print(f"[{self._number}/{mark}{self._total}] {title(manifest)}{left}")

    def event(self, event: dict) -> None:
        if event.get("kind") == "heartbeat" and event.get("doing"):
            self._print(f"    waiting for {event['doing']}")

    def run_ended(self, manifest: Manifest, record: Record) -> None:
        self._print(f"    {f'{title(manifest)}: ' if self._is_crowd else ''}{outcome_line(record)}")

    def notice(self, text: str) -> None:
        self._print(text)

    def end(self) -> None:
        return

    def _print(self, text: str) -> None:
        print(plain(text), file=self._stream, flush=True)


class LiveView(View):
    """Three lines on a terminal: the run, its iterations with phase and tokens/s, the plan's runs and the time left."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock, self._started, self._drawn = clock, 0.0, 0.0
        self._loaded, self._drawing = threading.Event(), threading.Lock()
        self._loaded.set()
        self._title = self._detail = self._rate = ""
        self._left: float | None = None
        self._iterations, self._iterations_done = 0, 0
        self._console = Console(file=stream)
        self._live = Live(console=self._console, auto_refresh=False, transient=True, get_renderable=self._lines)

    def begin(self, total: int, done: int) -> None:
        super().begin(total, done)
        self._live.start()

    def run_started(self, manifest: Manifest, seconds_left: float | None) -> None:
        self._title, self._detail, self._rate = plain(title(manifest)), "starting", ""
        self._iterations, self._iterations_done = manifest.measure.warmup + manifest.iterations, 0
        self._left, self._started = seconds_left, self._clock()
        self._draw(force=True)
        self._loaded = threading.Event()
        threading.Thread(target=self._tick, args=(self._loaded,), daemon=True).start()

    def event(self, event: dict) -> None:
        kind = event.get("kind")
        if kind == "heartbeat":  # it tells the launcher that the work goes on
            if event.get("doing"):
                self._detail = f"waiting for {plain(str(event['doing']))}"
                self._draw()
            return
        if kind == "start":
            self._detail = "loading the stack and the model"
        else:
            self._stop_ticking()
        if kind == "phase" and event.get("phase") in TIMED_NAMES:
            following = TIMED_NAMES.index(event["phase"]) + 1
            self._detail = TIMED[following].label if following < len(TIMED) else "between iterations"
        elif kind == "iteration":
            self._iterations_done += 1
            counts, seconds = event.get("counts"), event.get("seconds")
            if isinstance(counts, dict) and isinstance(seconds, float) and seconds > 0:
                tokens = counts.get("prompt_tokens", 0) + counts.get("response_tokens", 0)
                self._rate = f"{tokens / seconds:,.0f} tokens/s"
        elif kind == "environment":
            self._detail = "first iteration"
        self._draw()

    def run_ended(self, manifest: Manifest, record: Record) -> None:
        self._stop_ticking()
        self._title = ""
        self._print(f"{title(manifest)}: {outcome_line(record)}")
        if record.status != "interrupted":
            self._number += 1
        if self._number == self._total:
            self._left = None
        self._draw(force=True)

    def end(self) -> None:
        self._stop_ticking()
        self._live.stop()

    def _print(self, text: str) -> None:
        self._console.print(plain(text), highlight=False, markup=False)

    def _tick(self, loaded: threading.Event) -> None:
        """In a thread: draw now and then, and never once that is set."""
        while not loaded.wait(LOADING_REDRAW_SECONDS):
            with self._drawing:
                if not loaded.is_set():
                    self._live.refresh()

    def _stop_ticking(self) -> None:
        with self._drawing:
            self._loaded.set()

    def _draw(self, force: bool = False) -> None:
        now = self._clock()
        if not force and now - self._drawn < REDRAW_SECONDS:
            return
        self._drawn = now
        self._live.refresh()

    def _lines(self) -> Group:
        elapsed = self._clock() - self._started
        bars = Table.grid(padding=(0, 1))
        for ratio in (0, 0, 0, 1):
            bars.add_column(no_wrap=True, overflow="ellipsis", ratio=ratio or None)
        if self._title:
            waited = "" if self._loaded.is_set() else duration(elapsed)
            shown = "  ".join(text for text in (self._detail, waited, self._rate) if text)
            bars.add_row("iterations", *_bar(self._iterations_done, self._iterations), Text(shown))
        about = "about " if self._about else ""
        left = "" if self._left is None else f"{about}{duration(max(0.0, self._left - elapsed))} left"
        bars.add_row("runs", *_bar(self._number, self._total), Text(left))
        heading = [Text(self._title, no_wrap=True, overflow="ellipsis")] if self._title else []
        return Group(*heading, bars)


def _bar(done: int, total: int) -> tuple[ProgressBar, Text]:
    return ProgressBar(total=max(1, total), completed=done, width=_BAR_COLUMNS), Text(f"{done}/{total}")


def session_view(to_stderr: bool, is_crowd: bool) -> View:
    """A live line on a terminal, plain lines elsewhere and for runs side by side; nothing with -q."""
    stream = StringIO() if is_quiet() else sys.stderr if to_stderr else sys.stdout
    return LiveView(stream) if stream.isatty() and not is_crowd else View(stream, is_crowd)


def results(plan: Plan, root: Path) -> "ReportModel":
    """The report of the plan's runs that have ended under ``root``, of these alone."""
    # imported when there are some: a run need not wait for it to start
    from suite.bundle.derive import record_of
    from suite.report.facts.entry import Entry
    from suite.report.facts.model import build

    there = ended(plan, root, record_of)
    return build([Entry(manifest, record, bundle.path.as_posix()) for manifest, bundle, record in there])


def print_summary(summary: "Summary", plan: Plan, root: Path, reached: Iterable[str] = ()) -> None:
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
    for record in (*outcome.before, *outcome.after):
        told = outcome_line(record) if record.throughput is None else doubt(record)
        if told:
            say("\n".join(wrapped(told, width, first=f"{record.run.id}: ", rest="  ")))
    sides = (("before", outcome.before), ("now", outcome.after))
    rows = [(name, measured(records, outcome.with_suspect).runs, records) for name, records in sides if records]
    columns = [
        Column("", [name for name, _, _ in rows], left=True),
        Column("runs", [f"{len(runs)} of {len(records)}" for _, runs, records in rows]),
        Column("samples/s [95 %]", [interval(pooled_rate(runs)) if runs else "no rate" for _, runs, _ in rows]),
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
            Column(title, [getattr(each, name) for each in outcome.differences], left=True)
            for title, name in (("", "name"), ("before", "before"), ("now", "after"))
        ]
        say("\n".join(grid_lines(columns, width)))
    elif found is not None:
        say("environment: nothing known differs")
    say(f"bundles: {root}")
