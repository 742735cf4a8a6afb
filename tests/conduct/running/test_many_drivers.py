"""Several drivers on one folder: each run is made once, and what another has begun or finished stays where it is."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from typing import Any

import pytest

from suite.bundle import store
from suite.bundle.derive import record_of
from suite.bundle.store import ATTIC, Bundle, HeldByAnother, find_bundles
from suite.conduct.planning.plan import Plan, make_plan
from suite.conduct.running.ledger import Ledger, Settings
from suite.conduct.running.state import set_aside, state_of
from suite.spec.manifest import Manifest
from tests.conduct.requests import STACKS, request
from tests.conduct.sessions import Instantly, Remembering, work
from tests.synthetic import make_bundle

DRIVERS = 8


def drive(plan: Plan, root: Path, gate: Any, answers: Any) -> None:
    """One driver in a process of its own."""
    gate.wait()
    try:
        answers.put(list(work(plan, root, Instantly())[0].measured))
    except BaseException as error:  # noqa: BLE001 (told by the parent)
        answers.put(f"{type(error).__name__}: {error}")


@pytest.fixture
def plan() -> Plan:
    return make_plan(request(ranks=(1,), repeats=4), STACKS)


def test_eight_drivers_on_a_folder_of_interrupted_runs_all_end_well(tmp_path: Path, plan: Plan) -> None:
    for manifest in plan.manifests:
        Bundle.create(tmp_path, manifest)  # as a driver leaves it that dies at once
    forked = multiprocessing.get_context("fork")
    gate, answers = forked.Barrier(DRIVERS), forked.Queue()
    drivers = [forked.Process(target=drive, args=(plan, tmp_path, gate, answers)) for _ in range(DRIVERS)]
    for driver in drivers:
        driver.start()
    told = [answers.get(timeout=100) for _ in drivers]
    for driver in drivers:
        driver.join()
    assert [answer for answer in told if isinstance(answer, str)] == []
    assert sorted(run for measured in told for run in measured) == sorted(each.run.id for each in plan.manifests)
    kept = sorted(path.name for path in (tmp_path / ATTIC).iterdir())
    assert kept == sorted(f"{manifest.run.id}.1" for manifest in plan.manifests), "no good run was moved away"
    assert {record_of(bundle).status for bundle in find_bundles([tmp_path])} == {"ok"}
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_was_seen_is_looked_at_again_before_it_is_moved(tmp_path: Path, plan: Plan) -> None:
    finished, going_on, cut_off, moved = plan.manifests[:4]
    make_bundle(tmp_path, finished)
    Bundle.create(tmp_path, cut_off)
    seen = Remembering()
    a_moment_ago: Any = [(manifest, "interrupted") for manifest in plan.manifests[:4]]
    with Bundle.begin(tmp_path, going_on):
        ledger = Ledger(a_moment_ago, Settings(root=tmp_path, python="python"), seen, time.monotonic)
    assert ledger.outcome == {"done_before": [finished.run.id], "busy": [going_on.run.id]}
    assert ledger.waiting == [cut_off, moved]
    assert [path.name for path in (tmp_path / ATTIC).iterdir()] == [f"{cut_off.run.id}.1"]
    assert "interrupted: kept as" in seen.notices[1] and len(seen.notices) == 2


def test_a_run_is_held_from_the_moment_on_at_which_it_can_be_seen(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    rename = Path.rename

    def renamed(path: Path, target: Path) -> Path:
        rename(path, target)
        seen.append(Bundle(target).running())
        return target

    monkeypatch.setattr(Path, "rename", renamed)
    with Bundle.begin(tmp_path, plan.manifests[0]):
        pass
    assert seen == [True]
    assert state_of(tmp_path, plan.manifests[0]) == "interrupted", "and is let go at its end"


def test_a_lock_whose_run_was_moved_away_meanwhile_holds_nothing(
    tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = plan.manifests[0]
    bundle = Bundle.create(tmp_path, manifest)
    lock = store._locked

    def locked_too_late(path: Path) -> int:
        descriptor = lock(path)
        bundle.path.rename(tmp_path / "elsewhere")
        Bundle.create(tmp_path, manifest)
        return descriptor

    with monkeypatch.context() as patched:
        patched.setattr(store, "_locked", locked_too_late)
        with pytest.raises(HeldByAnother, match="was moved by another process"), bundle.hold():
            pass
    assert set_aside(tmp_path, manifest, lambda state: state == "interrupted").state == "interrupted"


def test_a_run_that_another_driver_began_and_left_is_done_in_its_place(tmp_path: Path, plan: Plan) -> None:
    """Nobody would do it, were it left to a driver that is dead by now."""
    first, second = plan.manifests[:2]

    class Meanwhile(Remembering):
        def run_started(self, manifest: Manifest, seconds_left: float | None) -> None:
            if manifest == first:
                Bundle.create(tmp_path, second)

    few = plan.model_copy(update={"manifests": (first, second)})
    summary, _ = work(few, tmp_path, Instantly(), Meanwhile())
    assert summary.measured == (first.run.id, second.run.id) and not summary.busy
