"""What ends a plan early, and what the same command then does: a full disk, and a container runtime that is gone."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import APIError
from requests.exceptions import ConnectionError as NoConnection
from urllib3.exceptions import ProtocolError

from suite.bundle.store import Bundle, find_bundles
from suite.bundle.verify import verify
from suite.conduct.planning.plan import Plan, make_plan
from suite.conduct.running.ledger import Settings
from suite.conduct.running.session import Summary, run_plan
from suite.conduct.running.spare_room import spare_room
from suite.launch.docker import launcher as docker
from suite.launch.docker.patterns import reason_of
from suite.launch.docker.settings import DockerSettings
from suite.launch.docker.watch import ContainerPatience
from suite.launch.job import Job
from suite.launch.outcome import Failure, LauncherAway, Outcome, RunFolder
from suite.spec.base import UsageError
from tests.conduct.requests import STACKS, request
from tests.conduct.running.test_many_drivers import Instantly
from tests.conduct.running.test_session import Remembering
from tests.launch.ranks import make_folder, make_job


@pytest.fixture
def plan() -> Plan:
    return make_plan(request(ranks=(1,), repeats=3, backends=("deepspeed",)), STACKS)


def work(plan: Plan, root: Path, launcher: Any) -> Summary:
    return run_plan(plan, Settings(root=root, python="python"), launcher, Remembering())


class Failing(Instantly):
    """The second run fails in this way."""

    def __init__(self, trouble: Any) -> None:
        super().__init__()
        self._trouble, self._runs = trouble, 0

    def run(self, job: Job, folder: RunFolder, on_event: object) -> Outcome:
        self._runs += 1
        if self._runs != 2:
            return super().run(job, folder, on_event)
        trouble = self._trouble(folder)
        if isinstance(trouble, Exception):
            raise trouble
        return Outcome(status="failed", exit_codes={0: 1}, elapsed_seconds=0.0, failure=trouble)


def test_the_same_command_does_what_a_full_disk_ended(tmp_path: Path, plan: Plan) -> None:
    full = Failure(kind="disk_full", evidence=("logs/rank-0.log: No space left on device",))
    summary = work(plan, tmp_path, Failing(lambda folder: full))
    second = plan.manifests[1].run.id
    assert summary.failed == (second,)
    record = Bundle(tmp_path / second).record()
    assert record is not None and record.failure is not None and record.failure.kind == "disk_full"
    again = work(plan, tmp_path, Instantly())
    assert again.measured == (second,) and not again.failed_before


@pytest.fixture
def little_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
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
    with (folder / "filler").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return


TOLD = Failure(kind="disk_full", evidence=("logs/rank-0.log: No space left on device",))
UNTOLD = Failure(kind="unknown", evidence=("rank 0 ended with exit code 1",))


LOST = Failure(kind="rank_lost", evidence=("rank 0: Connection closed by peer",))


@pytest.mark.parametrize("failure", [TOLD, UNTOLD, LOST], ids=["told", "no room to tell", "lost to one without room"])
def test_a_run_that_fills_the_disk_has_its_record_and_the_plan_ends_there(
    little_disk: Path, plan: Plan, failure: Failure
) -> None:
    class Filling(Instantly):
        """The disk is full before the second run has ended."""

        runs = 0

        def run(self, job: Job, folder: RunFolder, on_event: object) -> Outcome:
            self.runs += 1
            if self.runs == 1:
                return super().run(job, folder, on_event)
            fill(little_disk)
            return Outcome(status="failed", exit_codes={0: 1}, elapsed_seconds=0.0, failure=failure)

    runs = little_disk / "runs"
    _, second, third = (each.run.id for each in plan.manifests)
    with pytest.raises(UsageError, match="free some and run the same command again"):
        work(plan, runs, Filling())
    record = Bundle(runs / second).record()
    assert record is not None and record.failure is not None and record.failure.kind == "disk_full"
    assert verify(Bundle(runs / second)).status == "equal"
    (little_disk / "filler").unlink()
    assert work(plan, runs, Instantly()).measured == (second, third)
    assert {bundle.record().status for bundle in find_bundles([runs])} == {"ok"}  # type: ignore[union-attr]


def test_spare_room_is_room_and_has_no_name(little_disk: Path) -> None:
    with spare_room(little_disk) as spare:
        assert list(little_disk.iterdir()) == []
        fill(little_disk)
        with pytest.raises(OSError, match="No space left"):
            (little_disk / "record").write_bytes(bytes(100_000))
        spare.release()
        (little_disk / "record").write_bytes(bytes(100_000))
    with spare_room(little_disk / "nowhere") as none:
        none.release()


AWAY = "the container runtime at unix:///x has not answered for 30 s"


def test_a_launcher_that_is_gone_ends_the_plan_and_the_rest_is_left_to_run(tmp_path: Path, plan: Plan) -> None:
    with pytest.raises(UsageError, match="has not answered for 30 s"):
        work(plan, tmp_path, Failing(lambda folder: LauncherAway(AWAY)))
    _, second, third = (each.run.id for each in plan.manifests)
    record = Bundle(tmp_path / second).record()
    assert record is not None and record.failure is not None
    assert (record.status, record.failure.evidence) == ("interrupted", (AWAY,))
    assert verify(Bundle(tmp_path / second)).status == "equal"
    assert not (tmp_path / third).exists(), "nothing waits 30 s for it"
    assert work(plan, tmp_path, Instantly()).measured == (second, third)


REFUSED = NoConnection(ProtocolError("Connection aborted.", ConnectionRefusedError(111, "Connection refused")))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (REFUSED, "connection refused"),
        (
            NoConnection(ProtocolError("x", FileNotFoundError(2, "No such file or directory"))),
            "no such file or directory",
        ),
        (NoConnection(ProtocolError("Connection aborted.", ConnectionResetError("closed"))), "closed"),
        (NoConnection(), "ConnectionError"),
    ],
)
def test_why_a_runtime_is_away_is_told_in_words(error: Exception, words: str) -> None:
    assert reason_of(error) == words


class Gone:
    """The API of a runtime that nobody answers at."""

    def create_container_from_config(self, document: dict, name: str) -> dict:
        raise REFUSED

    def containers(self, *which: Any) -> list:
        raise REFUSED


def test_what_a_runtime_fails_to_remove_at_first_is_removed_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has just been started again may not have found its containers again."""
    asked: list[dict] = []

    def remove(api: Gone, labels: dict) -> bool:
        asked.append(labels)
        if len(asked) < 3:
            raise APIError("could not kill: did not receive an exit event")
        return len(asked) > 3

    monkeypatch.setattr(docker, "remove_labelled", remove)
    runtime = SimpleNamespace(api=Gone(), host="unix:///x", facts=SimpleNamespace(remote=False))
    launcher = docker.DockerLauncher(runtime, DockerSettings(), {})  # type: ignore[arg-type]
    with launcher._removed_afterwards(make_job(make_folder(tmp_path), "")):
        pass
    assert len(asked) == 4 and launcher.unremoved == []


def test_what_cannot_be_removed_in_time_is_removed_after_a_further_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: set[str] = {"first"}
    monkeypatch.setattr(docker, "remove_labelled", lambda api, labels: labels["suite.run"] not in refused)
    runtime = SimpleNamespace(api=Gone(), host="unix:///x", facts=SimpleNamespace(remote=False))
    launcher = docker.DockerLauncher(runtime, DockerSettings(), {}, ContainerPatience(remove_seconds=0.0))  # type: ignore[arg-type]
    job = make_job(make_folder(tmp_path), "")
    for run, left in (("first", ["first"]), ("second", ["first"])):
        with launcher._removed_afterwards(job.model_copy(update={"labels": {"suite.run": run}})):
            pass
        assert [labels["suite.run"] for labels in launcher.unremoved] == left
    refused.clear()
    another = launcher.beside(2, (), None, nullcontext)  # type: ignore[arg-type]
    with another._removed_afterwards(job.model_copy(update={"labels": {"suite.run": "third"}})):
        pass
    assert launcher.unremoved == []


def test_a_runtime_that_is_away_is_no_failure_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "container_document", lambda job, settings, rules: {"User": "0:0"})
    monkeypatch.setattr(docker.DockerLauncher, "_placing", lambda launcher, job: None)
    runtime = SimpleNamespace(api=Gone(), host="unix:///x", facts=SimpleNamespace(remote=False))
    monkeypatch.setattr(docker, "remove_labelled", Gone().containers)
    patience = ContainerPatience(runtime_seconds=0.0, remove_seconds=0.0)
    launcher = docker.DockerLauncher(runtime, DockerSettings(), {}, patience)  # type: ignore[arg-type]
    folder = make_folder(tmp_path)
    with pytest.raises(LauncherAway, match=r"at unix:///x has not answered for 0 s \(connection refused\): no further"):
        launcher.run(make_job(folder, ""), folder, lambda event: None)
