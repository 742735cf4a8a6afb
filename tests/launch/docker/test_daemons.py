"""Runtimes that are restarted, lost, far away or without GPUs: each test has its way with a daemon of its own."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from suite.launch.docker.connection import connect
from suite.launch.docker.offers import access_of
from suite.launch.docker.session import remove_orphans
from suite.launch.docker.watch import ContainerPatience
from suite.launch.local import free_port
from suite.launch.outcome import LauncherUnavailable
from tests.container_runtime import Runtime, require_runtime, started_runtime
from tests.containers import IMAGE, MEMLOCK, launcher, left, once_started, run_container

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(900)]  # the first makes the base image

CDI = {
    "cdiVersion": "0.5.0",
    "kind": "nvidia.com/gpu",
    "devices": [
        {"name": name, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{name}", "hostPath": "/dev/null"}]}}
        for name in "0123"
    ],
}
TICKS = """
event("start", pid=os.getpid())
for number in range(50):
    event("iteration", iteration=number)
    print("said", number, flush=True)
    time.sleep(0.1)
event("end", status="ok")
"""


@pytest.fixture(scope="module")
def daemon(runtime: Runtime, scripted_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    """A runtime that keeps containers over its own restart, offers CDI devices and no hook, and listens on TCP."""
    require_runtime()  # SUITE_TEST_DOCKER_HOST may name the other
    cdi = tmp_path_factory.mktemp("cdi")
    (cdi / "nvidia.json").write_text(json.dumps(CDI))
    config = {"live-restore": True, "features": {"cdi": True}, "cdi-spec-dirs": [str(cdi)], "bridge": "none"}
    port = free_port()
    arguments = ("-H", f"tcp://127.0.0.1:{port}", "--tls=false")
    with started_runtime(with_gpus=False, daemon=config, arguments=arguments) as started:
        save = subprocess.Popen(("docker", "-H", runtime.host, "save", IMAGE), stdout=subprocess.PIPE)
        subprocess.run(("docker", "-H", started.host, "load", "-q"), stdin=save.stdout, check=True)
        assert save.wait() == 0
        started.tcp = f"tcp://127.0.0.1:{port}"
        yield started


@pytest.fixture
def ours(daemon: Runtime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """The daemon as the one that Docker's settings name; nothing of a test may be left on it."""
    monkeypatch.setenv("DOCKER_HOST", daemon.host)
    if daemon.process is None:
        daemon.start()
    yield daemon
    if daemon.process is None:
        daemon.start()
    assert left(daemon) == [] and daemon.docker("volume", "ls", "--quiet").stdout == ""


def kill(runtime: Runtime) -> None:
    """As a crash would, with the containerd that it started: its containers live on."""
    containerd = runtime.folder / "exec" / "containerd" / "containerd.pid"
    os.kill(int(containerd.read_text()), signal.SIGKILL)
    runtime.process.kill()
    runtime.process.wait()
    runtime.process = None


def test_a_runtime_that_stays_away_ends_the_plan_and_the_next_session_clears_up(ours: Runtime, tmp_path: Path) -> None:
    patience = ContainerPatience(runtime_seconds=1.5, break_seconds=0.2, output_seconds=1.0)
    stopping = once_started(tmp_path, lambda: kill(ours))
    with pytest.raises(LauncherUnavailable, match=r"has not answered for 1\.5 s: no further run was started"):
        run_container(launcher(connect(), patience), tmp_path, TICKS)
    stopping.join()
    ours.start()
    assert len(left(ours)) == 1, "its container outlived the runtime"
    launched = launcher(connect())
    assert remove_orphans(launched.runtime.api, is_local=True) == 0, "this driver lives"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("suite.launch.docker.session._start_ticks", lambda pid: None)
        assert remove_orphans(launched.runtime.api, is_local=True) == 1


@pytest.mark.parametrize(
    "wanted", [{"devices": ("1", "3")}, {"devices": None, "device_count": 2}], ids=["ids", "count"]
)
def test_gpus_come_by_cdi_where_the_runtime_has_it(ours: Runtime, tmp_path: Path, wanted: dict) -> None:
    connected = connect()
    assert access_of(connected, "auto") == "cdi"
    script = 'print(sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")))'
    ran = run_container(launcher(connected, ulimits=MEMLOCK), tmp_path, script, **wanted)
    assert ran.outcome.status == "ok", ran.outcome
    names = wanted["devices"] or ("0", "1")
    assert ran.log().decode().strip() == str([f"nvidia{name}" for name in names])


def test_a_runtime_behind_tcp_gets_the_manifest_and_gives_the_results(ours, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", ours.tcp)
    connected = connect()
    assert connected.facts.remote
    ran = run_container(launcher(connected), tmp_path, TICKS.replace("0.1", "0"), ranks=2)
    assert ran.outcome.status == "ok", ran.outcome
    assert len((tmp_path / "events" / "rank-1.jsonl").read_text().splitlines()) == 52
    assert ran.log(1).startswith(b"said 0\nsaid 1\n")
    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr("suite.launch.docker.session.take_bundle", full)
    (tmp_path / "full").mkdir()
    outcome = run_container(launcher(connected), tmp_path / "full", 'event("start")').outcome
    assert outcome.status == "failed" and "could not be copied back" in outcome.failure.evidence[0]
