"""What a session at work shows: readable at 80 columns, a clock while a stack loads, none once iterations run."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from suite.bundle.record import Record
from suite.conduct.planning.plan import make_plan
from suite.conduct.running.ledger import Ledger, Settings
from suite.conduct.running.outcome_line import outcome_line
from suite.conduct.running.progress import LiveView, PlainView
from suite.spec.manifest import Manifest
from tests.conduct.requests import STACKS, request
from tests.report import entries as made

TICK_SECONDS = 0.02


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """All that was ever drawn, without the codes that colour it or move the cursor."""
        return (
            re.sub(r"\x1b\[[0-9;?]*[a-ln-zA-Z]", "\n", re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue()))
            .replace("\r", "\n")
            .split("\n")
        )


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


@pytest.fixture
def manifests() -> tuple[Manifest, ...]:
    return make_plan(request(ranks=(2,), repeats=2, backends=("deepspeed",)), STACKS).manifests


@pytest.fixture
def view(terminal: Terminal) -> Iterator[LiveView]:
    shown = LiveView(terminal, loading_seconds=TICK_SECONDS)
    shown.begin(2, 0)
    yield shown
    shown.end()


def grows(terminal: Terminal, seconds: float) -> bool:
    """Whether anything is drawn within that time although no event comes."""
    before, end = len(terminal.getvalue()), time.monotonic() + seconds
    while time.monotonic() < end:
        if len(terminal.getvalue()) > before:
            return True
        time.sleep(TICK_SECONDS / 2)
    return False


def record(manifest: Manifest, **changes: object) -> Record:
    return made.entry(**changes).record


def test_a_clock_ticks_while_a_stack_loads_and_stops_before_the_first_iteration(
    view: LiveView, terminal: Terminal, manifests: tuple[Manifest, ...]
) -> None:
    view.run_started(manifests[0], None)
    assert grows(terminal, 5), "while the process starts"
    view.event({"kind": "start"})
    view.event({"kind": "heartbeat", "phase": "setup"})
    assert grows(terminal, 5), "while the model loads, whatever its ranks tell of it"
    view.event({"kind": "environment"})
    assert not grows(terminal, 20 * TICK_SECONDS)
    view.event({"kind": "memory", "phase": "setup"})
    for _ in range(3):
        view.event({"kind": "phase", "phase": "generate"})
        view.event({"kind": "iteration"})
        assert not grows(terminal, 10 * TICK_SECONDS), "a timer while iterations run disturbs what is measured"
    before = terminal.getvalue()
    view.event({"kind": "heartbeat", "phase": "train", "iteration": 3})
    assert terminal.getvalue() == before, "a heartbeat is the launcher's"


def test_a_run_that_fails_while_it_loads_leaves_no_clock_behind(
    view: LiveView, terminal: Terminal, manifests: tuple[Manifest, ...]
) -> None:
    view.run_started(manifests[0], None)
    view.run_ended(manifests[0], made.failed().record)
    assert not grows(terminal, 20 * TICK_SECONDS)


def test_the_time_that_a_stack_takes_to_load_is_shown(terminal: Terminal, manifests: tuple[Manifest, ...]) -> None:
    now = iter(range(0, 10_000, 35))
    view = LiveView(terminal, clock=lambda: next(now), loading_seconds=TICK_SECONDS)
    view.begin(1, 0)
    view.run_started(manifests[0], None)
    view.event({"kind": "start"})
    assert any(re.search(r"loading the stack and the model  \d+:\d\d", line) for line in terminal.lines())
    view.event({"kind": "environment"})
    view.end()
    assert not any(re.search(r"first iteration  \d+:\d\d", line) for line in terminal.lines())


def test_at_80_columns_nothing_is_cut_and_the_bars_are_bars(
    view: LiveView, terminal: Terminal, manifests: tuple[Manifest, ...]
) -> None:
    view.run_started(manifests[0], 4000.0)
    view.event({"kind": "start"})
    view.event({"kind": "environment"})
    view._rate = "1,234,567 tokens/s"
    view._draw(force=True)
    drawn = [line.rstrip() for line in terminal.lines()]
    assert all(len(line) <= 80 for line in drawn)
    assert not any("…" in line for line in drawn)
    assert max(line.count("━") for line in drawn) == 20
    assert any("deepspeed tiny on 2 ranks (zero2 dp2), repeat 1" in line for line in drawn)
    assert any("1:06:40 left" in line for line in drawn)


def test_an_interrupted_run_is_not_counted_as_done(terminal: Terminal, manifests: tuple[Manifest, ...]) -> None:
    view = LiveView(terminal)
    view.begin(2, 0)
    view.run_started(manifests[0], None)
    view.run_ended(manifests[0], made.failed("interrupted").record)
    view.end()
    assert not any("1/2" in line for line in terminal.lines())
    assert any("0/2" in line for line in terminal.lines())


def test_interrupted_is_not_named_twice() -> None:
    assert outcome_line(made.failed("interrupted").record).split(":")[0] == "interrupted"
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
