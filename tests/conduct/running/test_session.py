"""A plan is worked through: what is done is skipped, what fails is kept, what was cut off is done again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from suite.bundle.record import Record
from suite.bundle.store import Bundle, find_bundles
from suite.bundle.verify import verify
from suite.conduct.planning.plan import Plan, make_plan
from suite.conduct.running.ledger import Settings
from suite.conduct.running.session import Summary, run_plan, states
from suite.launch.local import LocalLauncher
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from tests.conduct.requests import STACKS, request
from tests.scripted_suite import WORKER

ROOT = Path(__file__).resolve().parents[3]


class Remembering:
    """A view that remembers."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.notices: list[str] = []
        self.kinds: set[str] = set()

    def begin(self, total: int, done: int) -> None:
        self.total, self.done = total, done

    def planned(self, total: int) -> None:
        self.estimate = total

    def run_started(self, manifest: Manifest, seconds_left: float | None) -> None:
        self.left = seconds_left

    def event(self, event: dict) -> None:
        self.kinds.add(event["kind"])

    def run_ended(self, manifest: Manifest, record: Record) -> None:
        self.ended.append(manifest.run.id)

    def notice(self, text: str) -> None:
        self.notices.append(text)

    def end(self) -> None:
        self.total = 0


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("deepspeed", "megatron"):
        monkeypatch.setattr(f"suite.backends.{module}.own_worker_argv", lambda m, b: (str(WORKER), m, "--bundle", b))


def script(monkeypatch: pytest.MonkeyPatch, **fields: object) -> None:
    monkeypatch.setenv("SUITE_SCRIPT", json.dumps(fields))


def work(plan: Plan, root: Path, **settings: object) -> tuple[Summary, Remembering]:
    seen = Remembering()
    return run_plan(plan, Settings(root=root, python=sys.executable, **settings), LocalLauncher(), seen), seen


def test_every_run_is_measured_and_a_second_call_does_nothing(tmp_path: Path) -> None:
    plan = make_plan(request(ranks=(1, 2), repeats=1), STACKS)
    summary, seen = work(plan, tmp_path)
    assert len(summary.measured) == 4 and not summary.failed and seen.kinds >= {"start", "phase", "iteration", "end"}
    bundles = find_bundles([tmp_path])
    assert {bundle.record().status for bundle in bundles} == {"ok"}
    assert {verify(bundle).status for bundle in bundles} == {"equal"}
    start = time.monotonic()
    again, seen = work(plan, tmp_path)
    assert len(again.done_before) == 4 and not again.measured and not seen.ended
    assert time.monotonic() - start < 2


def test_a_failed_run_is_a_record_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(request(ranks=(1,), repeats=1), STACKS)
    script(monkeypatch, at={"iteration": 2, "do": "oom"})
    summary, _ = work(plan, tmp_path)
    assert len(summary.failed) == 2 and not summary.measured
    record = Bundle(tmp_path / plan.manifests[0].run.id).record()
    assert (
        record.status == "failed"
        and record.failure.kind == "oom_device"
        and "out of memory" in record.failure.evidence[0]
    )
    script(monkeypatch)
    assert len(work(plan, tmp_path)[0].failed_before) == 2, "a failed run is a result until it is asked for again"
    retried, seen = work(plan, tmp_path, retry_failed=True)
    assert len(retried.measured) == 2 and len(list((tmp_path / "attic").iterdir())) == 2, "nothing is overwritten"
    assert "failed before" in seen.notices[0]


@pytest.mark.parametrize("fault", ["", "oom"])
def test_a_run_that_is_over_and_has_no_record_gets_it_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A driver that was killed between the end of the run and its record, or found the disk full there."""
    plan = make_plan(request(ranks=(1,), repeats=1, backends=("deepspeed",)), STACKS)
    script(monkeypatch, **({"at": {"iteration": 2, "do": fault}} if fault else {}))
    work(plan, tmp_path)
    bundle = Bundle(tmp_path / plan.manifests[0].run.id)
    before = bundle.record_text()
    (bundle.path / "record.json").rename(bundle.path / ".record.json.1")
    (tmp_path / f".{bundle.id}.2").mkdir()
    for draft in (bundle.path / ".record.json.1", tmp_path / f".{bundle.id}.2"):
        os.utime(draft, (0, 0))
    again, seen = work(plan, tmp_path)
    assert (again.failed_before if fault else again.done_before) == (bundle.id,) and not seen.ended
    assert bundle.record_text() == before
    assert verify(bundle).status == "equal"
    assert not list(tmp_path.rglob(".*")), "drafts of the driver that was killed"


def test_a_folder_that_cannot_be_written_does_not_keep_a_plan_from_being_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, text: str) -> None:
        raise UsageError(f"cannot write {path}")

    plan = make_plan(request(ranks=(1,), repeats=1, backends=("deepspeed",)), STACKS)
    work(plan, tmp_path)
    (tmp_path / plan.manifests[0].run.id / "record.json").unlink()
    monkeypatch.setattr("suite.bundle.store.replace_atomically", refuse)
    assert len(work(plan, tmp_path)[0].done_before) == 1


def test_a_damaged_bundle_is_kept_aside_and_done_again(tmp_path: Path) -> None:
    plan = make_plan(request(ranks=(1,), repeats=1, backends=("deepspeed",)), STACKS)
    work(plan, tmp_path)
    path = tmp_path / plan.manifests[0].run.id
    (path / "manifest.json").write_text('{"schema": "suite/man')
    assert [state for _, state in states(plan, tmp_path)] == ["damaged"]
    summary, seen = work(plan, tmp_path)
    assert summary.measured == (path.name,) and "damaged" in seen.notices[0]
    assert (tmp_path / "attic" / f"{path.name}.1" / "manifest.json").read_text() == '{"schema": "suite/man'


def test_a_run_of_another_process_is_left_to_it(tmp_path: Path) -> None:
    plan = make_plan(request(ranks=(1,), repeats=1, backends=("deepspeed",)), STACKS)
    bundle = Bundle.create(tmp_path, plan.manifests[0])
    with bundle.hold():
        summary, _ = work(plan, tmp_path)
    assert summary.busy == (bundle.id,) and not summary.measured


@pytest.mark.parametrize("moment", ["before it is taken", "as it is taken"])
def test_a_run_that_another_driver_begins_meanwhile_is_left_to_it_and_the_rest_goes_on(
    tmp_path: Path, moment: str
) -> None:
    plan = make_plan(request(ranks=(1,), repeats=3, backends=("deepspeed",)), STACKS)
    first, second, third = plan.manifests

    class Meanwhile(Remembering):
        def run_started(self, manifest: Manifest, seconds_left: float | None) -> None:
            if manifest == (first if moment == "before it is taken" else second):
                others.enter_context(Bundle.begin(tmp_path, second))

    seen = Meanwhile()
    with ExitStack() as others:
        summary = run_plan(plan, Settings(root=tmp_path, python=sys.executable), LocalLauncher(), seen)
    assert (summary.measured, summary.busy) == ((first.run.id, third.run.id), (second.run.id,))
    assert seen.notices == [f"{second.run.id} is being run by another process and was left to it"]


def test_the_budget_stops_before_a_run_that_would_exceed_it(tmp_path: Path) -> None:
    plan = make_plan(request(ranks=(1,), repeats=3, backends=("deepspeed",)), STACKS)
    ticks = iter(range(0, 10_000, 40))
    seen = Remembering()
    settings = Settings(root=tmp_path, python=sys.executable, budget_seconds=150)
    summary = run_plan(plan, settings, LocalLauncher(), seen, clock=lambda: next(ticks))
    assert len(summary.measured) == 1 and len(summary.left_by_budget) == 2
    assert "budget" in seen.notices[-1]


def test_a_results_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("mine")
    with pytest.raises(UsageError, match="cannot write"):
        work(make_plan(request(ranks=(1,), repeats=1), STACKS), tmp_path / "runs")
    assert (tmp_path / "runs").read_text() == "mine"


def drive(root: Path, script: dict, *arguments: str) -> subprocess.Popen:
    command = [sys.executable, str(ROOT / "tests/scripted_suite.py"), "run", "--size", "1M", "--runs", str(root)]
    command += ["--backend", "deepspeed", "--device", "cpu", "--repeats", "1", "--ranks", "2", "--iterations", "6"]
    env = {**os.environ, "SUITE_SCRIPT": json.dumps(script)}
    return subprocess.Popen(
        [*command, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for_iteration(root: Path, number: int) -> Bundle:
    """Wait until both ranks have ended so many iterations and one more."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for bundle in find_bundles([root]) if root.exists() else ():
            events = [path.read_text() for path in (bundle.path / "events").glob("rank-*.jsonl")]
            if len(events) == 2 and min(text.count('"kind": "iteration"') for text in events) > number:
                return bundle
        time.sleep(0.02)
    raise AssertionError("the run never got there")


def ranks_of(bundle: Bundle) -> list[int]:
    found = []
    for path in sorted((bundle.path / "events").glob("rank-*.jsonl")):
        found.append(json.loads(path.read_text().splitlines()[0])["pid"])
    return found


def all_gone(pids: list[int]) -> bool:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        alive = [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]
        if not alive:
            return True
        time.sleep(0.05)
    return False


SLOW = {"seconds": 0.2, "sleep": True}


def test_kill_9_of_the_driver_leaves_an_interrupted_record_and_resume_completes_it(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    driver = drive(root, SLOW)
    bundle = wait_for_iteration(root, 3)
    ranks = ranks_of(bundle)
    driver.send_signal(signal.SIGKILL)
    driver.communicate(timeout=10)
    assert all_gone(ranks), "no rank outlives its driver"
    report = subprocess.run(
        [sys.executable, "-m", "suite", "report", str(root), "--json"], capture_output=True, text=True, cwd=ROOT
    )
    assert report.returncode == 0, report.stderr
    driver = drive(root, {})
    output = driver.communicate(timeout=60)[0]
    assert driver.returncode == 0 and "interrupted" in output
    kept = Bundle(root / "attic" / f"{bundle.id}.1").record()
    assert kept.status == "interrupted" and len(kept.iterations.seconds) >= 3
    assert Bundle(bundle.path).record().status == "ok"


def test_ctrl_c_stops_the_ranks_and_keeps_what_was_measured(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    driver = drive(root, SLOW)
    bundle = wait_for_iteration(root, 3)
    ranks = ranks_of(bundle)
    driver.send_signal(signal.SIGINT)
    output = driver.communicate(timeout=30)[0]
    assert driver.returncode == 130 and "Traceback" not in output
    assert all_gone(ranks)
    assert bundle.record().status == "interrupted" and len(bundle.record().iterations.seconds) >= 3


@pytest.mark.alone
def test_kill_9_of_a_rank_fails_its_run_with_proof_and_leaves_nothing_behind(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    driver = drive(root, SLOW)
    bundle = wait_for_iteration(root, 3)
    ranks = ranks_of(bundle)
    os.kill(ranks[1], signal.SIGKILL)
    output = driver.communicate(timeout=30)[0]
    assert driver.returncode == 1, output
    assert all_gone(ranks)
    record = bundle.record()
    assert record.status == "failed" and record.failure.kind == "rank_lost"
    assert any("rank 1" in line and "SIGKILL" in line for line in record.failure.evidence)
    assert len(record.iterations.seconds) >= 3, "at most the iteration it was in is lost"


def test_a_silent_run_is_a_hang(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    driver = drive(root, {"at": {"iteration": 3, "do": "hang"}}, "--silence", "1s")
    output = driver.communicate(timeout=60)[0]
    assert driver.returncode == 1, output
    record = find_bundles([root])[0].record()
    assert record.failure.kind == "hang" and record.failure.evidence


def test_a_run_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    root = tmp_path / "runs"
    driver = drive(root, {"seconds": 0.5, "sleep": True}, "--timeout", "2s")
    assert driver.communicate(timeout=60) and driver.returncode == 1
    assert find_bundles([root])[0].record().failure.kind == "timeout"
