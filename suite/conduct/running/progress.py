"""Showing a session at work. Nothing is drawn but when an event arrives: the driver sleeps while ranks measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from suite.bundle.record import Record
from suite.conduct.running.outcome_line import outcome_line
from suite.spec.manifest import Manifest
from suite.spec.phases import TIMED, TIMED_NAMES

REDRAW_SECONDS = 0.25


def duration(seconds: float | None) -> str:
    """``1:02:03``, ``2:03`` or ``?``."""
    if seconds is None:
        return "?"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def title(manifest: Manifest) -> str:
    """The run in a few words."""
    ranks = manifest.layout.ranks
    return (
        f"{manifest.backend.name} {manifest.size.name} on {ranks} rank{'s' if ranks > 1 else ''} "
        f"({manifest.layout.label()}), repeat {manifest.run.repeat}"
    )


class PlainView:
    """A line when a run begins and one when it ends: for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._total = 0
        self._number = 0

    def begin(self, total: int, done: int) -> None:
        self._total, self._number = total, done

    def run_started(self, manifest: Manifest, seconds_left: float | None) -> None:
        self._number += 1
        left = f", {duration(seconds_left)} left" if seconds_left is not None else ""
        self._say(f"[{self._number}/{self._total}] {title(manifest)}{left}")

    def event(self, event: dict) -> None:
        return

    def run_ended(self, manifest: Manifest, record: Record) -> None:
        self._say(f"    {outcome_line(record)}")

    def notice(self, text: str) -> None:
        self._say(text)

    def end(self) -> None:
        return

    def _say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class CrowdView(PlainView):
    """As lines, for runs that go on side by side: each names the run it speaks of."""

    def run_ended(self, manifest: Manifest, record: Record) -> None:
        self._say(f"    {title(manifest)}: {outcome_line(record)}")


class LiveView:
    """Two bars on a terminal: runs of the plan, and iterations of the run with phase, tokens/s and time left."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._drawn = 0.0
        self._detail = ""
        self._rate = ""
        self._left: float | None = None
        self._started = 0.0
        self._run: TaskID | None = None
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
            console=Console(file=stream),
            auto_refresh=False,
            transient=True,
        )

    def begin(self, total: int, done: int) -> None:
        self._plan = self._progress.add_task("runs", total=total, completed=done, detail="")
        self._progress.start()

    def run_started(self, manifest: Manifest, seconds_left: float | None) -> None:
        total = manifest.measure.warmup + manifest.measure.iterations
        self._left, self._started, self._rate, self._detail = seconds_left, self._clock(), "", "starting"
        self._run = self._progress.add_task(escape(title(manifest)), total=total, detail="starting")
        self._draw(force=True)

    def event(self, event: dict) -> None:
        kind = event.get("kind")
        if kind == "phase" and event.get("phase") in TIMED_NAMES:
            following = TIMED_NAMES.index(event["phase"]) + 1
            self._detail = TIMED[following].label if following < len(TIMED) else "between iterations"
        elif kind == "iteration":
            self._count(event)
        elif kind == "start":
            self._detail = "loading the stack and the model"
        elif kind == "environment":
            self._detail = "first iteration"
        self._draw()

    def run_ended(self, manifest: Manifest, record: Record) -> None:
        assert self._run is not None
        self._progress.remove_task(self._run)
        self._run = None
        self._progress.console.print(f"{escape(title(manifest))}: {escape(outcome_line(record))}", highlight=False)
        self._progress.advance(self._plan)
        self._draw(force=True)

    def notice(self, text: str) -> None:
        self._progress.console.print(escape(text), highlight=False)

    def end(self) -> None:
        self._progress.stop()

    def _count(self, event: dict) -> None:
        counts, seconds = event.get("counts"), event.get("seconds")
        if self._run is not None:
            self._progress.advance(self._run)
        if isinstance(counts, dict) and isinstance(seconds, float) and seconds > 0:
            tokens = counts.get("prompt_tokens", 0) + counts.get("response_tokens", 0)
            self._rate = f"{tokens / seconds:,.0f} tokens/s"

    def _draw(self, force: bool = False) -> None:
        now = self._clock()
        if not force and now - self._drawn < REDRAW_SECONDS:
            return
        self._drawn = now
        left = None if self._left is None else max(0.0, self._left - (now - self._started))
        if self._run is not None:
            detail = "  ".join(part for part in (self._detail, self._rate) if part)
            self._progress.update(self._run, detail=detail)
        self._progress.update(self._plan, detail=f"{duration(left)} left")
        self._progress.refresh()
