"""The docker launcher against a real runtime: how containers are made, how they end, and that none is left."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import tarfile
from pathlib import Path

import docker
import pytest

from suite.launch.docker.connection import Runtime as Connected
from suite.launch.docker.connection import connect
from suite.spec.base import UsageError
from tests.container_runtime import Runtime
from tests.containers import MEMLOCK, launcher, once_started, run_container
from tests.launch.ranks import Ran

pytestmark = pytest.mark.daemon


def failure_of(ran: Ran):
    assert ran.outcome.status == "failed", ran.outcome
    return ran.outcome.failure


LOOK = """
import grp, pwd, resource
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
def writes(path):
    try:
        open(path, "w").close()
        return True
    except OSError as error:
        return error.strerror
event("start")
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "capabilities": status["CapEff"].strip(),
    "no_new_privileges": status["NoNewPrivs"].strip(), "stack": resource.getrlimit(resource.RLIMIT_STACK),
    "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK),
    "shm": os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize,
    "root": writes("/opt/x"), "tmp": writes("/tmp/x"), "home": os.environ["HOME"], "user": os.environ["USER"],
    "exec": os.statvfs("/tmp").f_flag & os.ST_NOEXEC, "cpus": sorted(os.sched_getaffinity(0)),
    "init": open("/proc/1/comm").read().strip(), "devices": os.environ["SUITE_DEVICES"],
    "visible": os.environ.get("NVIDIA_VISIBLE_DEVICES"),
    "nvidia": sorted(name for name in os.listdir("/dev") if name[:6] == "nvidia" and name[6:].isdigit()),
    "memory": [open(path).read().strip() for path in ("/sys/fs/cgroup/memory/memory.limit_in_bytes",
               "/sys/fs/cgroup/memory.max") if os.path.exists(path)], "hosts": sorted(os.listdir("/sys/class/net")),
}))
event("end", status="ok")
"""


def test_a_container_is_as_small_as_its_work_allows_and_its_results_are_the_callers(
    connected: Connected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suite.launch.docker.launcher.os.getuid", lambda: 1234)
    monkeypatch.setattr("suite.launch.docker.launcher.os.getgid", lambda: 1235)
    tmp_path.chmod(0o777)
    os.umask(0)  # the folders of the bundle are made by this process, not by uid 1234
    try:
        ran = run_container(launcher(connected, shm_bytes=1 << 27, cpuset="0"), tmp_path, LOOK)
    finally:
        os.umask(0o022)
    assert ran.outcome.status == "ok", ran.outcome
    assert ran.outcome.exit_codes == {0: 0}
    assert [event["kind"] for event in ran.events] == ["start", "end"]
    seen = json.loads(ran.log())
    assert (seen["uid"], seen["gid"], seen["user"], seen["home"]) == (1234, 1235, "uid-1234", "/tmp")
    assert (seen["capabilities"], seen["no_new_privileges"]) == ("0000000000000000", "1")
    assert (seen["root"], seen["tmp"], seen["exec"]) == ("Read-only file system", True, 0)
    assert (seen["stack"], seen["shm"], seen["cpus"]) == ([64 << 20, 64 << 20], 1 << 27, [0])
    assert seen["init"] in ("docker-init", "tini")
    assert (seen["devices"], seen["visible"], seen["nvidia"]) == ("", "void", [])
    owner = (tmp_path / "events" / "rank-0.jsonl").stat()
    assert (owner.st_uid, owner.st_gid, stat.S_IMODE(owner.st_mode)) == (1234, 1235, 0o644)


@pytest.mark.parametrize(
    ("wanted", "word", "nodes"),
    [
        ({"devices": ("3", "5")}, "ids:3,5", ["nvidia3", "nvidia5"]),
        ({"devices": None, "device_count": 2}, "count:2", ["nvidia0", "nvidia1"]),
    ],
    ids=["by ids", "by count"],
)
def test_a_gpu_run_sees_the_gpus_it_asked_for_and_the_limits_it_was_given(
    connected: Connected, tmp_path: Path, wanted: dict, word: str, nodes: list[str]
) -> None:
    ran = run_container(launcher(connected, ulimits=MEMLOCK), tmp_path, LOOK, **wanted)
    assert ran.outcome.status == "ok", ran.outcome
    seen = json.loads(ran.log())
    assert (seen["devices"], seen["nvidia"], seen["memlock"]) == (word, nodes, [1 << 16, 1 << 16])


def test_a_limit_that_the_runtime_may_not_raise_comes_with_the_way_round_it(
    connected: Connected, tmp_path: Path
) -> None:
    failure = failure_of(run_container(launcher(connected), tmp_path, LOOK, devices=("0",)))
    if "rlimit" not in failure.evidence[0]:
        pytest.skip("this runtime may lift the limit on locked memory")
    assert failure.kind == "config" and "--ulimit memlock=8388608" in failure.evidence[1]


def test_a_gpu_that_does_not_exist_is_named_in_the_runtimes_words(connected: Connected, tmp_path: Path) -> None:
    launched = launcher(connected, ulimits=MEMLOCK)
    failure = failure_of(run_container(launched, tmp_path, LOOK, devices=("99",)))
    assert failure.kind == "gpu_unavailable"
    assert failure.evidence[0] == "nvidia-container-cli: device error: 99: unknown device"


def test_host_memory_out_is_not_taken_for_a_kill(connected: Connected, tmp_path: Path) -> None:
    script = 'event("start")\nevent("phase", phase="train", iteration=3)\nx = b"x" * (1 << 30)'
    failure = failure_of(run_container(launcher(connected), tmp_path, script, memory_bytes=200 << 20))
    assert (failure.kind, failure.phase, failure.iteration) == ("oom_host", "train", 3)


WAIT = 'event("start", pid=os.getpid())\nevent("phase", phase="train", iteration=1)\ntime.sleep(60)'


def container_of(runtime: Runtime) -> str:
    return runtime.docker("ps", "--quiet", "--no-trunc", "--filter", "label=suite.run=Scripted-1M-n1-r1").stdout.strip()


KILLED = "the container was killed from outside (exit code 137, OOMKilled false)"


@pytest.mark.parametrize(
    ("command", "evidence"),
    [
        (("kill",), KILLED),
        # it is killed first, and removed a moment later: a driver may look between
        (("rm", "--force"), ("the container was removed in mid-run by somebody else", KILLED)),
        (("stop", "--time", "5"), "the container was sent SIGTERM, and not by this driver"),
    ],
    ids=["killed", "removed", "stopped"],
)
def test_what_others_do_to_a_container_is_a_lost_run_with_its_last_phase(
    connected: Connected, runtime: Runtime, tmp_path: Path, command: tuple[str, ...], evidence: str | tuple[str, ...]
) -> None:
    other = once_started(tmp_path, lambda: runtime.docker(*command, container_of(runtime)))
    failure = failure_of(run_container(launcher(connected), tmp_path, WAIT))
    other.join()
    assert (failure.kind, failure.phase, failure.iteration) == ("rank_lost", "train", 1)
    assert failure.evidence[0].startswith(evidence)


def test_a_run_over_its_time_and_a_silent_one_are_ended_inside(connected: Connected, tmp_path: Path) -> None:
    (tmp_path / "late").mkdir()
    (tmp_path / "silent").mkdir()
    late = failure_of(run_container(launcher(connected), tmp_path / "late", WAIT, run_seconds=0.5))
    assert (late.kind, late.evidence) == ("timeout", ("the run took longer than its limit of 0.5 s",))
    hang = "import faulthandler\nfaulthandler.register(signal.SIGUSR1)\n" + WAIT
    silent = failure_of(run_container(launcher(connected), tmp_path / "silent", hang, silence_seconds=0.7))
    assert silent.kind == "hang" and any("File" in line for line in silent.evidence), "a hang comes with its stack"


def test_fifty_megabytes_of_output_are_in_the_bundle_to_the_last_byte(connected: Connected, tmp_path: Path) -> None:
    script = """
event("start")
block = bytes(range(256)) * 256
for _ in range(400):
    os.write(1, block)
    os.write(2, block)
os.write(1, b"\\n")
event("end", status="ok")
"""
    ran = run_container(launcher(connected), tmp_path, script)
    assert ran.outcome.status == "ok" and [event["kind"] for event in ran.events] == ["start", "end"]
    block = bytes(range(256)) * 256
    log = ran.log()
    assert len(log) == 800 * len(block) + 1 and log.count(block[:255]) >= 800 - 1


def test_what_the_container_itself_says_is_logged_byte_for_byte(connected: Connected, tmp_path: Path) -> None:
    """The node is taken out of the way: the container prints 50 MB on both streams and ends without an outcome."""
    script = "import os; b = bytes(range(256)) * 256; [os.write(1 + i % 2, b) for i in range(800)]; os._exit(3)"
    launched = launcher(connected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("suite.launch.docker.document.NODE", ("/opt/suite/bin/python", "-c", script))
        failure = failure_of(run_container(launched, tmp_path, ""))
    assert failure.kind == "unknown" and "ended with exit code 3" in failure.evidence[0]
    assert (tmp_path / "logs" / "container.log").stat().st_size == 800 * 65536


def test_a_full_disk_inside_is_named_as_such(connected: Connected, runtime: Runtime, tmp_path: Path) -> None:
    script = 'event("start")\nopen("/dev/shm/x", "wb").write(b"x" * (1 << 24))'
    failure = failure_of(run_container(launcher(connected, shm_bytes=1 << 20), tmp_path, script))
    assert failure.kind == "disk_full" and "No space left on device" in failure.evidence[0]


def test_an_image_without_the_suite_is_a_matter_of_configuration(
    connected: Connected, base_image: str, tmp_path: Path
) -> None:
    failure = failure_of(run_container(launcher(connected, image=base_image), tmp_path, ""))
    assert failure.kind == "config" and "/opt/suite/bin/python" in failure.evidence[0]
    assert "suite images build" in failure.evidence[1]


def test_an_image_that_went_between_two_runs_is_missing(connected: Connected, tmp_path: Path) -> None:
    launched = launcher(connected)
    job = {"image": "sha256:" + "0" * 64}
    failure = failure_of(run_container(launched, tmp_path, "", **job))
    assert failure.kind == "image_missing" and failure.evidence[0].lower().startswith("no such image")


def test_a_program_of_another_architecture_is_named_as_such(
    connected: Connected, runtime: Runtime, tmp_path: Path
) -> None:
    """The image claims to be of this host's architecture, and its programs are not."""
    foreign = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00\x01" + bytes(43)  # of an aarch64 machine
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("bin/sh", "opt/suite/bin/python"):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(foreign), 0o755
            tar.addfile(entry, io.BytesIO(foreign))
    image = "suite-foreign:test"
    docker.APIClient(base_url=runtime.host, version="auto").import_image_from_data(
        archive.getvalue(), *image.split(":")
    )
    failure = failure_of(run_container(launcher(connected, image=image), tmp_path, ""))
    assert failure.kind == "config" and "xec format error" in failure.evidence[0]
    assert "architecture" in failure.evidence[1]


def test_a_folder_that_the_runtime_does_not_see_comes_with_the_way_round_it(
    connected: Connected, tmp_path: Path
) -> None:
    launched = launcher(connected)
    mounts = ({"source": "/nowhere", "target": "/work/runs/Scripted-1M-n1-r1", "read_only": False},)
    failure = failure_of(run_container(launched, tmp_path, "", mounts=mounts))
    assert failure.kind == "config" and "--copy-back" in failure.evidence[1]


def test_a_bundle_is_copied_where_the_runtime_shares_no_folder(
    connected: Connected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    remote = replace(connected, facts=connected.facts.model_copy(update={"remote": True}))
    monkeypatch.setattr("suite.launch.docker.launcher.os.getuid", lambda: 1234)
    script = """
event("start", manifest=open("/work/runs/Scripted-1M-n1-r1/manifest.json").read(), uid=os.getuid())
print("said by rank", rank)
if rank == 0:
    os.symlink("/etc/passwd", os.environ["EVENTS"] + "/rank-7.jsonl")
open(os.environ["EVENTS"] + "/driver.jsonl", "w").write("forged")
fail("config", "as told")
sys.exit(1)
"""
    ran = run_container(launcher(remote), tmp_path, script, ranks=2)
    assert failure_of(ran).kind == "config", "also after a failure"
    assert ran.events[0]["manifest"] == "{}" and ran.events[0]["uid"] == 1234
    assert sorted(path.name for path in ran.folder.events_dir.iterdir()) == ["rank-0.jsonl", "rank-1.jsonl"]
    assert ran.log(1) == b"said by rank 1\n"


#: what OpenSSH does for `ssh -L LOCAL:REMOTE HOST cat`, with this machine in the place of the far one
SSH = """#!{python}
import socket, sys, threading
local, remote = sys.argv[sys.argv.index("-L") + 1].split(":")
assert sys.argv[-3:] == ["--", "far", "cat"] and sys.argv[sys.argv.index("-l") + 1] == "me", sys.argv
if "2222" not in sys.argv:
    sys.exit("me@far: Permission denied (publickey).")
def pump(source, target):
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)
def serve(listening):
    while True:
        near, far = listening.accept()[0], socket.socket(socket.AF_UNIX)
        far.connect(remote)
        for pair in ((near, far), (far, near)):
            threading.Thread(target=pump, args=pair, daemon=True).start()
listening = socket.socket(socket.AF_UNIX)
listening.bind(local)
listening.listen()
threading.Thread(target=serve, args=(listening,), daemon=True).start()
sys.stdin.read()
"""


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(SSH.replace("{python}", sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_a_runtime_behind_ssh_gets_the_manifest_and_gives_the_results(
    connected: Connected, runtime: Runtime, ssh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", runtime.host.replace("unix://", "ssh://me@far:2222"))
    far = connect()
    assert far.facts.remote and far.host.startswith("ssh://me@far:2222/")
    ran = run_container(launcher(far), tmp_path, 'event("start")\nprint("said")\nevent("end", status="ok")', ranks=2)
    assert ran.outcome.status == "ok", ran.outcome
    assert [event["kind"] for event in ran.events] == ["start", "end"] and ran.log(1) == b"said\n"


def test_ssh_that_does_not_let_us_in_is_quoted(ssh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@far")
    with pytest.raises(UsageError, match=r"cannot be reached by ssh: me@far: Permission denied \(publickey\)"):
        connect()
