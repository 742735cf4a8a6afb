"""What a session at work shows: readable at 80 columns, a clock while a stack loads, none once iterations run."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from suite.conduct.planning.plan import make_plan
from suite.conduct.running import progress
from suite.conduct.running.ledger import Ledger, Settings
from suite.conduct.running.outcome_line import outcome_line
from suite.conduct.running.progress import LiveView, PlainView, Ticker
from suite.spec.manifest import Manifest
from tests.conduct.requests import STACKS, request
from tests.report import entries as made
from tests.waiting import wait_until


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """All that was ever drawn, without the codes that colour it or move the cursor."""
        uncoloured = re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue())
        text = re.sub(r"\x1b\[[0-9;?]*[a-ln-zA-Z]", "\n", uncoloured).replace("\r", "\n")
        return [line.rstrip() for line in text.split("\n")]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


@pytest.fixture
def manifest() -> Manifest:
    return make_plan(request(ranks=(2,), repeats=2, backends=("deepspeed",)), STACKS).manifests[0]


class Ticking:
    """A clock that ticks when it is told to; it knows whether it was stopped."""

    now = 0.0
    last: Any = None

    def __init__(self, seconds: float, draw: Callable[[], None]) -> None:
        self.tick, self.ticks = draw, True
        Ticking.last = self

    def stop(self) -> None:
        self.ticks = False


@pytest.fixture
def view(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveView]:
    """A view on two runs, whose clock stands still until it is set."""
    monkeypatch.setattr(progress, "Ticker", Ticking)
    monkeypatch.setattr(Ticking, "now", 0.0)
    shown = LiveView(terminal, clock=lambda: Ticking.now)
    shown.begin(2, 0)
    yield shown
    shown.end()


def test_a_ticker_draws_until_it_is_stopped_and_never_again() -> None:
    drawn: list[None] = []
    ticker = Ticker(0.001, lambda: drawn.append(None))
    wait_until(lambda: len(drawn) > 2)
    ticker.stop()
    before = len(drawn)
    ticker._tick()
    assert len(drawn) == before, "its thread ends as this call does"


def test_a_clock_ticks_while_a_stack_loads_and_stops_before_the_first_iteration(
    view: LiveView, terminal: Terminal, manifest: Manifest
) -> None:
    view.run_started(manifest, None)
    clock = Ticking.last
    for event in ({"kind": "start"}, {"kind": "heartbeat", "phase": "setup"}):
        view.event(event)
        assert clock.ticks, "while the model loads, whatever its ranks tell of it"
    Ticking.now = 35.0
    clock.tick()
    assert any("loading the stack and the model  0:35" in line for line in terminal.lines())
    view.event({"kind": "environment"})
    assert not clock.ticks, "a timer while iterations run disturbs what is measured"
    for kind in ("memory", "phase", "iteration"):
        view.event({"kind": kind, "phase": "generate"})
    assert Ticking.last is clock, "and none is started anew"
    assert not any(re.search(r"first iteration  \d+:\d\d", line) for line in terminal.lines())
    before = terminal.getvalue()
    view.event({"kind": "heartbeat", "phase": "train", "iteration": 3})
    assert terminal.getvalue() == before, "a heartbeat is the launcher's"


def test_a_run_that_fails_while_it_loads_leaves_no_clock_behind(view: LiveView, manifest: Manifest) -> None:
    view.run_started(manifest, None)
    view.run_ended(manifest, made.failed().record)
    assert not Ticking.last.ticks


def test_at_80_columns_nothing_is_cut_and_the_bars_are_bars(
    view: LiveView, terminal: Terminal, manifest: Manifest
) -> None:
    view.run_started(manifest, 4000.0)
    view.event({"kind": "environment"})
    view._rate = "1,234,567 tokens/s"
    view._draw(force=True)
    drawn = terminal.lines()
    assert all(len(line) <= 80 for line in drawn)
    assert not any("…" in line for line in drawn)
    assert max(line.count("━") for line in drawn) == 20
    assert any("deepspeed tiny on 2 ranks (zero2 dp2), repeat 1" in line for line in drawn)
    assert any("1:06:40 left" in line for line in drawn)


def test_an_interrupted_run_is_not_counted_as_done(view: LiveView, terminal: Terminal, manifest: Manifest) -> None:
    view.run_started(manifest, None)
    view.run_ended(manifest, made.failed("interrupted").record)
    view.end()
    assert any("0/2" in line for line in terminal.lines()) and not any("1/2" in line for line in terminal.lines())
    assert outcome_line(made.failed("interrupted").record).split(":")[0] == "interrupted", "it is not named twice"
    assert outcome_line(made.failed("oom_device").record).startswith("failed (oom_device)")


def test_the_time_left_is_never_more_than_the_budget_has(tmp_path: Path) -> None:
    manifests = make_plan(request(ranks=(1,), repeats=9, backends=("deepspeed",)), STACKS).manifests
    left: list[float | None] = []

    class Watching(PlainView):
        def run_started(self, manifest: Manifest, seconds_left: float | None) -> None:
            left.append(seconds_left)

    now = [0.0]
    settings = Settings(root=tmp_path, python="python", budget_seconds=150)
    ledger = Ledger([(one, "to run") for one in manifests], settings, Watching(io.StringIO()), lambda: now[0])
    while manifest := ledger.take():
        now[0] += 40
        ledger.ended(manifest, made.entry().record)
    assert left == [None, 110, 70]
    assert len(ledger.outcome["left_by_budget"]) == 6
