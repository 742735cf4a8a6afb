"""What a session shows at work, before and after it: readable at 80 columns, and honest."""

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from suite.bundle.store import Bundle
from suite.conduct.planning.preflight import preflight
from suite.conduct.planning.show import plan_rows, print_plan
from suite.conduct.running import display
from suite.conduct.running.display import LiveView, View, print_summary, results
from suite.conduct.running.outcome_line import outcome_line
from suite.conduct.running.rerun import read_manifest
from suite.conduct.running.session import Ledger, Settings
from suite.conduct.running.state import states
from suite.launch.outcome import Failure
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from tests.conduct.requests import STACKS, make_plan, request, shape
from tests.conduct.running.test_troubles import Failing
from tests.conduct.sessions import Instantly, work
from tests.report import entries as made
from tests.waiting import wait_until


class Terminal(io.StringIO):
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


class Clock:
    now = 0.0


@pytest.fixture
def view(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveView]:
    """A view on two runs, whose clock stands still until it is set, and which draws nothing by itself."""
    monkeypatch.setattr(display, "LOADING_REDRAW_SECONDS", 1000.0)
    monkeypatch.setattr(Clock, "now", 0.0)
    shown = LiveView(terminal, clock=lambda: Clock.now)
    shown.begin(2, 0)
    yield shown
    shown.end()


def test_a_view_ticks_until_its_stack_is_loaded_and_never_again(view, terminal, manifest, monkeypatch) -> None:
    monkeypatch.setattr(display, "LOADING_REDRAW_SECONDS", 0.001)
    drawn: list[None] = []
    monkeypatch.setattr(view._live, "refresh", lambda: drawn.append(None))
    view.run_started(manifest, None)
    wait_until(lambda: len(drawn) > 3)
    view.event({"kind": "environment"})
    before = len(drawn)
    view._tick(view._loaded)
    assert len(drawn) == before, "its thread ends as this call does"


def test_a_clock_ticks_only_while_a_stack_loads(view: LiveView, terminal: Terminal, manifest: Manifest) -> None:
    view.run_started(manifest, 4000.0)
    loaded = view._loaded
    for event in ({"kind": "start"}, {"kind": "heartbeat", "phase": "setup"}):
        view.event(event)
        assert not loaded.is_set(), "while the model loads, whatever its ranks tell of it"
    Clock.now = 35.0
    view._live.refresh()
    assert any("loading the stack and the model  0:00:35" in line for line in terminal.lines())
    assert any("deepspeed tiny on 2 ranks (zero2 dp2), repeat 1" in line for line in terminal.lines())
    assert any("1:06:05 left" in line for line in terminal.lines())
    view.event({"kind": "heartbeat", "phase": "setup", "doing": "Ray's start"})
    assert not loaded.is_set() and any("waiting for Ray's start  0:00:35" in line for line in terminal.lines())
    view.event({"kind": "environment"})
    assert loaded.is_set(), "a timer while iterations run disturbs what is measured"
    for kind in ("memory", "phase", "iteration"):
        view.event({"kind": kind, "phase": "generate"})
    assert view._loaded is loaded, "and none is started anew"
    assert not any(re.search(r"first iteration  \d+:\d\d", line) for line in terminal.lines())
    before = terminal.getvalue()
    view.event({"kind": "heartbeat", "phase": "train", "iteration": 3})
    assert terminal.getvalue() == before, "a heartbeat is the launcher's"


def test_an_interrupted_run_is_not_counted_as_done(view: LiveView, terminal: Terminal, manifest: Manifest) -> None:
    view.run_started(manifest, None)
    view.run_ended(manifest, made.failed("interrupted").record)
    assert view._loaded.is_set(), "one that ends while it loads leaves no clock behind"
    view.end()
    assert any("0/2" in line for line in terminal.lines()) and not any("1/2" in line for line in terminal.lines())
    assert outcome_line(made.failed("interrupted").record).split(":")[0] == "interrupted", "it is not named twice"
    assert outcome_line(made.failed("oom_device").record).startswith("failed (oom_device)")


def test_the_time_left_is_never_more_than_the_budget_has(tmp_path: Path) -> None:
    manifests = make_plan(request(ranks=(1,), repeats=9, backends=("deepspeed",)), STACKS).manifests
    left: list[float | None] = []

    class Watching(View):
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


Printed = pytest.CaptureFixture[str]
FAST = Instantly(lambda manifest: 0.02 * (1 + manifest.run.repeat * 1e-6))


def test_the_plan_shows_whole_run_ids(tmp_path: Path, capsys: Printed, narrow: Callable[[], None]) -> None:
    narrow()
    sizes = (shape("33B-trlx-and-more"), shape("66B", layers=4))
    plan = make_plan(request(sizes=sizes, ranks=(1, 2), repeats=3), STACKS)
    found = preflight(plan.manifests, None)
    print_plan(plan, plan_rows(states(plan.manifests, tmp_path), found), found)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert all(sum(manifest.run.id in line for line in lines) == 1 for manifest in plan.manifests)
    assert not [line for line in lines if len(line) > 80 or "…" in line]


def test_the_results_stand_at_the_end_one_row_for_each_configuration(tmp_path, capsys, narrow, monkeypatch):
    narrow()
    monkeypatch.chdir(tmp_path)
    plan, root = make_plan(request(ranks=(1,), repeats=2), STACKS), Path("runs")
    print_summary(work(plan, root, FAST)[0], plan, root)
    told = capsys.readouterr().out
    assert not [line for line in told.splitlines() if len(line.rstrip()) > 80]
    assert "deepspeed" in told and told.count(" 200") == 2
    assert "4 runs measured, 0 failed" in told and "report: suite report" in told
    print_summary(work(plan, root, FAST)[0], plan, root)
    again = capsys.readouterr().out
    assert "already holds all 4 runs; nothing to do" in again and again.count(" 200") == 2


def test_results_count_failed_runs_and_pool_the_others(tmp_path: Path) -> None:
    plan = make_plan(request(ranks=(1,), repeats=3, backends=("deepspeed",)), STACKS)
    second = plan.model_copy(update={"manifests": plan.manifests[1:2]})
    failing = Failing(Failure(kind="oom_device"))
    failing._runs = 1
    work(second, tmp_path, failing)
    (row,) = results(second, tmp_path).rows
    assert (row.runs_ok, row.runs, row.without_rate) == (0, 1, "failed")
    work(plan, tmp_path, FAST)
    (row,) = results(plan, tmp_path).rows
    assert (row.runs_ok, row.runs) == (2, 3) and row.samples_per_second.value == pytest.approx(200, rel=1e-4)


def test_a_results_folder_is_not_a_bundle_and_the_message_names_some(tmp_path: Path) -> None:
    plan = make_plan(request(ranks=(1,), repeats=5, backends=("deepspeed",)), STACKS)
    for manifest in plan.manifests:
        Bundle.create(tmp_path / "runs", manifest)
    with pytest.raises(UsageError, match=r"is a results folder with 5 bundles.* and 2 more$") as error:
        read_manifest(tmp_path / "runs")
    assert str(tmp_path / "runs" / plan.manifests[0].run.id) in str(error.value)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"no manifest\.json and no bundle"):
        read_manifest(tmp_path / "empty")
