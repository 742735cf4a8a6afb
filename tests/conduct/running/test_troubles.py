"""What ends a plan early and what the same command then does; ranks that print anything, and a user who stops them."""

import io
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from docker.errors import APIError, NotFound
from requests.exceptions import ConnectionError as NoConnection
from urllib3.exceptions import ProtocolError

from suite.bundle import files
from suite.bundle.derive import derive
from suite.bundle.event_fields import is_shown
from suite.bundle.files import replace_atomically
from suite.bundle.record import Record
from suite.bundle.store import Bundle, end_fields, failure_fields, find_bundles
from suite.bundle.verify import verify
from suite.conduct.planning.plan import Plan
from suite.conduct.running.at_once import Slots, side_by_side
from suite.conduct.running.display import LiveView
from suite.conduct.running.session import Ledger, Settings, Summary
from suite.launch.docker import launcher as docker
from suite.launch.docker.settings import DockerSettings
from suite.launch.docker.watch import ContainerPatience
from suite.launch.job import Job
from suite.launch.outcome import Failure, LauncherUnavailable, Outcome
from suite.launch.requests import MOST_WAITING
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from tests.conduct.requests import STACKS, make_plan, request
from tests.conduct.sessions import Instantly, work
from tests.launch.ranks import make_folder, make_job
from tests.report.entries import failed
from tests.scripted_suite import WORKER


@pytest.fixture
def plan() -> Plan:
    return make_plan(request(ranks=(1,), repeats=3, backends=("deepspeed",)), STACKS)


class Failing(Instantly):
    """The second run fails in this way; where a disk is named, it and all later ones once that disk is full."""

    def __init__(self, trouble: Failure | Exception, full: Path | None = None) -> None:
        super().__init__()
        self._trouble, self._full, self._runs = trouble, full, 0

    def run(self, job: Job, folder: Path, on_event: object) -> Outcome:
        self._runs += 1
        if self._runs == 1 or (self._runs > 2 and self._full is None):
            return super().run(job, folder, on_event)
        if self._full is not None:
            fill(self._full)
        if isinstance(self._trouble, Exception):
            raise self._trouble
        return Outcome(status="failed", exit_codes={0: 1}, elapsed_seconds=0.0, failure=self._trouble)


def recorded(root: Path, run: str) -> tuple[Record, Failure]:
    """The record of a run that did not end well, which its events give again."""
    record = Bundle(root / run).record()
    assert record is not None and record.failure is not None and verify(Bundle(root / run)).status == "equal"
    return record, record.failure


TOLD = Failure(kind="disk_full", evidence=("logs/rank-0.log: No space left on device",))
UNTOLD = Failure(kind="unknown", evidence=("rank 0 ended with exit code 1",))
LOST = Failure(kind="rank_lost", evidence=("rank 0: Connection closed by peer",))


@pytest.fixture
def little_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system that can be filled")
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)), check=True)
    try:
        yield folder
    finally:
        subprocess.run(("umount", str(folder)), check=True)


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.parametrize("failure", [TOLD, UNTOLD, LOST], ids=["told", "no room to tell", "lost to one without room"])
def test_a_run_that_fills_the_disk_ends_the_plan(little_disk: Path, plan: Plan, failure: Failure) -> None:
    runs = little_disk / "runs"
    _, second, third = (each.run.id for each in plan.manifests)
    with pytest.raises(UsageError, match="free some and run the same command again"):
        work(plan, runs, Failing(failure, full=little_disk))
    assert recorded(runs, second)[1].kind == "disk_full"
    (little_disk / "filler").unlink()
    assert work(plan, runs, Instantly())[0].measured == (second, third)
    assert {bundle.record().status for bundle in find_bundles([runs])} == {"ok"}  # type: ignore[union-attr]


def test_a_launcher_that_is_gone_ends_the_plan_and_the_rest_is_left_to_run(tmp_path: Path, plan: Plan) -> None:
    away = "the container runtime at unix:///x has not answered for 30 s"
    with pytest.raises(UsageError, match="has not answered for 30 s"):
        work(plan, tmp_path, Failing(LauncherUnavailable(away)))
    _, second, third = (each.run.id for each in plan.manifests)
    record, failure = recorded(tmp_path, second)
    assert (record.status, failure.evidence) == ("interrupted", (away,))
    assert not (tmp_path / third).exists(), "nothing waits 30 s for it"
    assert work(plan, tmp_path, Instantly())[0].measured == (second, third)


REFUSED = NoConnection(ProtocolError("Connection aborted.", ConnectionRefusedError(111, "Connection refused")))


def launcher_without_runtime(**patience: float) -> docker.DockerLauncher:
    api = Mock(**{"create_container_from_config.side_effect": REFUSED, "remove_container.side_effect": REFUSED})
    runtime: Any = SimpleNamespace(api=api, host="unix:///x", facts=SimpleNamespace(remote=False))
    return docker.DockerLauncher(runtime, DockerSettings(), {}, ContainerPatience(**patience))


def test_what_is_not_removed_at_first_is_soon() -> None:
    """One that has just been started again may not have found its containers again."""
    not_yet = APIError("could not kill: did not receive an exit event")
    launcher = launcher_without_runtime(remove_seconds=120.0)
    remove = launcher.runtime.api.remove_container
    remove.side_effect = [not_yet, not_yet, None, NotFound("gone")]
    launcher._remove("a-run")
    assert remove.call_count == 4


def test_a_runtime_that_is_away_is_no_failure_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker.DockerLauncher, "_document", lambda launcher, job: {"User": "0:0"})
    launcher = launcher_without_runtime(runtime_seconds=0.0, remove_seconds=0.0)
    folder = make_folder(tmp_path)
    says = r"at unix:///x has not answered for 0 s \(connection refused\): no further"
    with pytest.raises(LauncherUnavailable, match=says):
        launcher.run(make_job(folder, ""), folder, lambda event: None)
    once = Mock(side_effect=[REFUSED, "made"])
    assert launcher_without_runtime(runtime_seconds=600.0)._patiently(once) == "made", "one that comes back"


def test_a_broken_view_ends_runs_side_by_side(tmp_path: Path, plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[str | None] = []

    def execute(
        manifest: Manifest, root: Path, launcher: Any, python: str, on_event: Callable[[dict], None], start: None
    ) -> Record:
        for number in range(2 * MOST_WAITING):
            on_event({"number": number})
        with launcher.stops() as requests:
            select.select([requests.descriptor], [], [])
            stopped.append(requests.take())
        return failed("interrupted").record

    monkeypatch.setattr("suite.conduct.running.at_once.execute", execute)
    view: Any = Mock(**{"event.side_effect": BrokenPipeError, "run_ended.side_effect": BrokenPipeError})
    launcher: Any = SimpleNamespace(beside=lambda stops, *given, **more: SimpleNamespace(stops=stops))
    settings = Settings(root=tmp_path, python="python")
    ledger = Ledger([(one, "to run") for one in plan.manifests], settings, view, lambda: 0.0)
    with pytest.raises(BrokenPipeError):
        side_by_side(ledger, launcher, Slots(tuple("01234567"), 2))
    assert stopped == ["SIGTERM", "SIGTERM"]


Script = Callable[..., None]

#: Prints these before it is the scripted worker.
WORKER_WITH = """
import runpy, sys
for line in {lines!r}:
    print("::suite:: " + line, flush=True)
runpy.run_path({worker!r}, run_name="__main__")
"""


def iteration(prompt_tokens: Any, seconds: float = 1.0) -> dict[str, Any]:
    counts = {"samples": 1, "response_tokens": 1, "prompt_tokens": prompt_tokens}
    return {"kind": "iteration", "time": 1.0, "iteration": 0, "seconds": seconds, "counts": counts}


NONSENSE = [
    *(iteration("many"), iteration(None), iteration(10**400), iteration(1, seconds=5e-324)),
    {"kind": "phase", "phase": ["generate"]},
    {"kind": "start", "time": {}},
    {"kind": "environment", "time": 1.0, "facts": {"a": "\ud800"}},
    {"kind": "phase", "time": 1.0, "phase": "\ud800" + "x" * 900_000, "iteration": -(10**300)},
]


@pytest.fixture
def one_run() -> Plan:
    return make_plan(request(ranks=(1,), repeats=1, backends=("deepspeed",)), STACKS)


@pytest.fixture
def run(one_run: Plan, tmp_path: Path, script: Script, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Summary]:
    """Run the plan; its worker prints these events first, and does as the script says."""

    def call(*events: dict[str, Any], **fields: Any) -> Summary:
        script(**fields)
        program = tmp_path / "worker.py"
        program.write_text(WORKER_WITH.format(lines=list(map(json.dumps, events)), worker=WORKER))
        argv = "suite.backends.deepspeed.DeepSpeed.worker_argv"
        monkeypatch.setattr(argv, lambda _, manifest, bundle: (str(program), manifest, "--bundle", bundle))
        return work(one_run, tmp_path / "runs", view=LiveView(io.StringIO()))[0]

    return call


@pytest.fixture
def bundle(one_run: Plan, tmp_path: Path) -> Bundle:
    return Bundle(tmp_path / "runs" / one_run.manifests[0].run.id)


def test_events_that_are_none_are_not_shown(run: Callable[..., Summary], bundle: Bundle) -> None:
    assert len(run(*NONSENSE, at={"iteration": 0, "do": "exit", "phase": "generate"}).failed) == 1
    assert verify(bundle).status == "equal"
    assert bundle.record().failure.evidence[0] == "rank 0 ended with exit code 1"
    assert not any(map(is_shown, NONSENSE))


def test_what_the_driver_writes_of_an_end_is_bounded() -> None:
    failure = Failure(kind="hang", phase="\udfff" + "p" * 1000, iteration=-1, evidence=("\ud800" + "e" * 5000,) * 5000)
    told = failure_fields(failure)
    assert told["phase"] == "?" + "p" * 79 and told["iteration"] is None
    assert told["evidence"] == ["?" + "e" * 499] * 500
    outcome = Outcome(status="failed", exit_codes={0: 1 << 40, 1: -9, 7: 0, -1: 0}, elapsed_seconds=1e300)
    assert end_fields(outcome, 2) == {"status": "failed", "exit_codes": {"0": None, "1": -9}, "elapsed_seconds": 1e9}


@pytest.mark.parametrize("status", ["ok", "interrupted"])
def test_a_request_to_stop_while_the_record_is_derived_loses_nothing(run, bundle, monkeypatch, status):
    """As a second Ctrl-C does; one that did not stop the run itself still stops the plan."""
    script = {}
    if status == "interrupted":
        script = {"at": {"iteration": 0, "do": "hang"}}
        monkeypatch.setattr(LiveView, "event", lambda self, event: os.kill(os.getpid(), signal.SIGINT))

    def derive_and_be_stopped(bundle: Bundle, is_over: bool = False) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return derive(bundle, is_over=is_over)

    monkeypatch.setattr("suite.bundle.derive.derive", derive_and_be_stopped)
    try:
        run(**script)
        assert status == "interrupted"
    except KeyboardInterrupt:
        assert status == "ok"
    assert bundle.record().status == status
    assert not [path for path in bundle.path.iterdir() if path.name.startswith(".")]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_in_the_middle_of_a_file_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            replace_atomically(tmp_path / "record.json", "{}")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f".record.json.{os.getpid()}").write_text("of a process of this number that was killed")
    replace_atomically(tmp_path / "record.json", "{}")
    assert [path.name for path in tmp_path.iterdir()] == ["record.json"]
