"""A plan is worked through, by one driver or several: each run once; what fails is kept, what is cut off done again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from suite.bundle import files
from suite.bundle.derive import derive, record_of
from suite.bundle.store import ATTIC, Bundle, HeldByAnother, find_bundles
from suite.bundle.verify import verify
from suite.conduct.planning.plan import Plan
from suite.conduct.running.attic import set_aside
from suite.conduct.running.rerun import require_same_stack
from suite.conduct.running.session import Ledger, Settings
from suite.conduct.running.state import judged, states
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from tests.command import suite
from tests.conduct.requests import STACKS, make_plan, request
from tests.conduct.sessions import Instantly, Remembering, raced, work
from tests.synthetic import make_bundle, synthetic_manifest
from tests.waiting import wait_until
from tests.worker.tiny import is_alive

ROOT = Path(__file__).resolve().parents[3]
Script = Callable[..., None]
pytestmark = pytest.mark.usefixtures("script")


def plan_of(**changes: Any) -> Plan:
    """One run, unless more are asked for."""
    return make_plan(request(**{"ranks": (1,), "repeats": 1, "backends": ("deepspeed",), **changes}), STACKS)


def test_every_run_is_measured_and_a_second_call_does_nothing(tmp_path: Path) -> None:
    plan = make_plan(request(ranks=(1, 2), repeats=1), STACKS)
    summary, seen = work(plan, tmp_path)
    assert len(summary.measured) == 4 and not summary.failed
    assert {event["kind"] for event in seen.events} >= {"start", "phase", "iteration", "end"}
    bundles = find_bundles([tmp_path])
    assert {bundle.record().status for bundle in bundles} == {"ok"}
    assert {verify(bundle).status for bundle in bundles} == {"equal"}
    again, seen = work(plan, tmp_path)
    assert len(again.done_before) == 4 and not again.measured and not seen.ended and not seen.events


def test_a_failed_run_is_a_record_and_the_rest_goes_on(tmp_path: Path, script: Script) -> None:
    plan = plan_of(backends=("deepspeed", "megatron"))
    script(at={"iteration": 2, "do": "oom"})
    summary, _ = work(plan, tmp_path)
    assert len(summary.failed) == 2 and not summary.measured
    record = Bundle(tmp_path / plan.manifests[0].run.id).record()
    assert (record.status, record.failure.kind) == ("failed", "oom_device")
    assert "out of memory" in record.failure.evidence[0]
    script()
    assert len(work(plan, tmp_path)[0].failed_before) == 2, "a failed run is a result until it is asked for again"
    retried, seen = work(plan, tmp_path, retry_failed=True)
    assert len(retried.measured) == 2 and len(list((tmp_path / "attic").iterdir())) == 2, "nothing is overwritten"
    assert "failed before" in seen.notices[0]


@pytest.mark.parametrize("fault", ["", "oom"])
def test_the_same_command_writes_a_missing_record(tmp_path: Path, script: Script, fault: str) -> None:
    """A driver that was killed between the end of the run and its record, or found the disk full there."""
    plan = plan_of()
    script(**({"at": {"iteration": 2, "do": fault}} if fault else {}))
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


def test_a_plan_is_done_though_no_record_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of()
    work(plan, tmp_path)
    (tmp_path / plan.manifests[0].run.id / "record.json").unlink()
    monkeypatch.setattr("suite.bundle.files.replace_atomically", Mock(side_effect=UsageError("cannot write")))
    assert len(work(plan, tmp_path)[0].done_before) == 1


def test_a_damaged_bundle_is_kept_aside_and_done_again(tmp_path: Path) -> None:
    plan = plan_of()
    work(plan, tmp_path)
    path = tmp_path / plan.manifests[0].run.id
    (path / "manifest.json").write_text('{"schema": "suite/man')
    assert [state for _, state in states(plan.manifests, tmp_path)] == ["damaged"]
    summary, seen = work(plan, tmp_path)
    assert summary.measured == (path.name,) and "damaged" in seen.notices[0]
    assert (tmp_path / "attic" / f"{path.name}.1" / "manifest.json").read_text() == '{"schema": "suite/man'


@pytest.mark.parametrize("moment", ["before the plan", "before it is taken", "as it is taken"])
def test_a_run_of_another_driver_is_left_to_it_and_the_rest_goes_on(tmp_path: Path, moment: str) -> None:
    plan = plan_of(repeats=3)
    first, second, third = plan.manifests

    class Meanwhile(Remembering):
        def run_started(self, manifest: Manifest, seconds_left: float | None) -> None:
            if (moment, manifest) in (("before it is taken", first), ("as it is taken", second)):
                others.enter_context(Bundle.begin(tmp_path, second))

    with ExitStack() as others:
        if moment == "before the plan":
            others.enter_context(Bundle.create(tmp_path, second).hold())
        summary, seen = work(plan, tmp_path, view=Meanwhile())
    assert (summary.measured, summary.busy) == ((first.run.id, third.run.id), (second.run.id,))
    assert seen.notices == [f"{second.run.id} is being run by another process and was left to it"]


def ranks_in_their_fifth_iteration(root: Path) -> list[int]:
    """Both ranks' processes once neither does anything any more; empty before."""
    texts = [path.read_text() for path in sorted(root.glob("*/events/rank-*.jsonl"))]
    if len(texts) < 2 or min(text.count('"kind": "iteration"') for text in texts) < 4:
        return []
    return [json.loads(text.splitlines()[0])["pid"] for text in texts]


RUN = ("run", "--size", "1M", "--backend", "deepspeed", "--device", "cpu", "--repeats", "1", "--ranks", "2")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_is_stopped_leaves_an_interrupted_record_and_no_rank_and_the_same_command_completes_it(
    tmp_path: Path, script: Script, number: signal.Signals
) -> None:
    runs = tmp_path / "runs"
    words = (*RUN, "--iterations", "6", "--runs", str(runs))
    command = [sys.executable, str(ROOT / "tests/scripted_suite.py"), *words]
    env = {**os.environ, "SUITE_SCRIPT": json.dumps({"at": {"iteration": 4, "do": "hang"}})}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as driver:
        ranks = wait_until(lambda: ranks_in_their_fifth_iteration(runs))
        driver.send_signal(number)
        output = driver.communicate()[0]
    assert "Traceback" not in output
    wait_until(lambda: not any(map(is_alive, ranks)))
    (bundle,) = find_bundles([runs])
    if number == signal.SIGINT:
        assert driver.returncode == 130 and bundle.record().status == "interrupted"
    assert suite("report", runs, "--json").exit_code == 0
    done = suite(*words)
    assert done.exit_code == 0 and "interrupted" in done.output
    kept = Bundle(runs / "attic" / f"{bundle.id}.1").record()
    assert (kept.status, len(kept.iterations.seconds)) == ("interrupted", 4), "all that was measured is kept"
    assert Bundle(bundle.path).record().status == "ok"


@pytest.fixture
def plan() -> Plan:
    return make_plan(request(ranks=(1,), repeats=4), STACKS)


def test_eight_drivers_on_a_folder_of_interrupted_runs_all_end_well(tmp_path: Path, plan: Plan) -> None:
    for manifest in plan.manifests:
        Bundle.create(tmp_path, manifest)  # as a driver leaves it that dies at once
    told = raced(8, lambda: plan, lambda plan: work(plan, tmp_path, Instantly())[0].measured)
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


def test_a_start_is_begun_as_a_whole_or_not_at_all_and_counts_once(tmp_path: Path) -> None:
    plan = make_plan(request(ranks=(1,), repeats=3), STACKS)
    now, seen = [0.0], Remembering()
    settings = Settings(root=tmp_path, python="python", budget_seconds=25)
    ledger = Ledger([(manifest, "to run") for manifest in plan.manifests], settings, seen, lambda: now[0])
    for _ in range(2):
        first, second = ledger.take(), ledger.take(is_begun=True)
        assert first is not None and second is not None, "the budget does for the first, and so for all of its start"
        now[0] += 10
        for manifest in (first, second):
            ledger.ended(manifest, derive(Bundle(make_bundle(tmp_path, manifest))))
        assert seen.left == (None if now[0] == 10 else pytest.approx(15)), "two starts of 10 s, of a budget of 25"
    assert ledger.take() is None and len(ledger.outcome["left_by_budget"]) == 2


def test_a_lock_of_a_moved_run_holds_nothing(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = plan.manifests[0]
    bundle = Bundle.create(tmp_path, manifest)
    lock = files.locked

    def locked_too_late(path: Path, flags: int) -> int:
        descriptor = lock(path, flags)
        bundle.path.rename(tmp_path / "elsewhere")
        Bundle.create(tmp_path, manifest)
        return descriptor

    with monkeypatch.context() as patched:
        patched.setattr(files, "locked", locked_too_late)
        with pytest.raises(HeldByAnother, match="was moved by another process"), bundle.hold():
            pass
    assert set_aside(tmp_path, manifest, lambda state: state == "interrupted")[0] == "interrupted"


def test_a_run_that_is_begun_between_two_looks_is_not_moved(tmp_path, plan, monkeypatch):
    """Eight drivers did: one had moved the run away, another saw nothing there and locked nothing."""
    manifest = plan.manifests[0]
    with ExitStack() as running:

        def begun_meanwhile(bundle: Bundle, *arguments: Any, **options: Any) -> str:
            running.enter_context(Bundle.begin(tmp_path, manifest))
            return judged(bundle, *arguments, **options)

        monkeypatch.setattr("suite.conduct.running.attic.judged", begun_meanwhile)
        assert set_aside(tmp_path, manifest, lambda state: True) == ("to run", None)


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


def test_a_patch_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("run", "--backend", "deepspeed", "--size", "1M", "--ranks", "1", "--repeats", "2", "--iterations", "3")
    for code, state in (("release", "2 done"), ("patched", "2 to run")):
        monkeypatch.setattr("suite.conduct.planning.machine.stack_code", lambda *_, code=code: {"deepspeed": code})
        if code == "release":
            assert suite(*words, "--runs", tmp_path, "--python", "/usr/bin/python3").exit_code == 0
        assert f"{state}; nothing was run" in suite(*words, "--runs", tmp_path, "--dry-run").stdout
    (first, _) = tmp_path.glob("deepspeed-*")
    assert json.loads((first / "manifest.json").read_text())["stack_code"] == {"deepspeed": "release"}
    assert json.loads((first / "environment.json").read_text())["interpreter"] == "/usr/bin/python3"


def test_a_manifest_without_code_keeps_its_bytes_and_a_rerun_on_other_code_is_refused() -> None:
    plain, made = synthetic_manifest(), synthetic_manifest(code="release")
    assert "stack_code" not in plain.model_dump_json()
    assert made.hash != plain.hash and made.work_hash == plain.work_hash
    require_same_stack(made, made.stack, {"deepspeed": "release"})
    with pytest.raises(UsageError, match="was measured with other code of deepspeed"):
        require_same_stack(made, made.stack, {"deepspeed": "patched"})
