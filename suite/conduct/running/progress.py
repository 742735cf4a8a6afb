"""Showing a session at work. From the first iteration on nothing is drawn but when an event arrives.

A clock that ticks on the screen would disturb what is measured. So one ticks only while a stack starts and loads its
model, every few seconds, and stops before the first iteration begins; then the driver sleeps while ranks measure.
"""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from suite.bundle.record import Record
from suite.conduct.running.outcome_line import outcome_line
from suite.spec.manifest import Manifest
from suite.spec.phases import TIMED, TIMED_NAMES
from suite.spec.terminal import plain

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


class PlainView:
    """A line when a run begins and one when it ends: for logs and pipes."""

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


#: What a session reports to while it works.
View = PlainView


class Ticker:
    """Calls ``draw`` every so many seconds in a thread of its own; once ``stop`` has returned, never again."""

    def __init__(self, seconds: float, draw: Callable[[], None]) -> None:
        self._seconds, self._draw = seconds, draw
        self._stopped, self._lock = threading.Event(), threading.Lock()
        threading.Thread(target=self._tick, daemon=True).start()

    def stop(self) -> None:
        with self._lock:
            self._stopped.set()

    def _tick(self) -> None:
        while not self._stopped.wait(self._seconds):
            with self._lock:
                if not self._stopped.is_set():
                    self._draw()


class LiveView(PlainView):
    """Three lines on a terminal: the run, its iterations with phase and tokens/s, the plan's runs and the time left."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream)
        self._clock, self._started, self._drawn = clock, 0.0, 0.0
        self._ticker: Ticker | None = None
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
        self._ticker = Ticker(LOADING_REDRAW_SECONDS, self._live.refresh)

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

    def _stop_ticking(self) -> None:
        if self._ticker is not None:
            self._ticker.stop()
            self._ticker = None

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
            waited = duration(elapsed) if self._ticker is not None else ""
            shown = "  ".join(text for text in (self._detail, waited, self._rate) if text)
            bars.add_row("iterations", *_bar(self._iterations_done, self._iterations), Text(shown))
        about = "about " if self._about else ""
        left = "" if self._left is None else f"{about}{duration(max(0.0, self._left - elapsed))} left"
        bars.add_row("runs", *_bar(self._number, self._total), Text(left))
        heading = [Text(self._title, no_wrap=True, overflow="ellipsis")] if self._title else []
        return Group(*heading, bars)


def _bar(done: int, total: int) -> tuple[ProgressBar, Text]:
    return ProgressBar(total=max(1, total), completed=done, width=_BAR_COLUMNS), Text(f"{done}/{total}")
