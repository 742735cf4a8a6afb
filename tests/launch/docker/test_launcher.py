"""The docker launcher against a real runtime: how containers are made, how they end, and that none is left."""

import json
import os
import re
import stat
from pathlib import Path

import pytest

from suite.launch.docker.connection import Runtime as Connected
from suite.launch.docker.connection import connect
from suite.spec.base import UsageError
from tests.container_runtime import Runtime
from tests.containers import MEMLOCK, launcher, once_started, run_container
from tests.programs import python_program

pytestmark = pytest.mark.daemon


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
}))
event("end", status="ok")
"""


def test_a_container_is_as_small_as_its_work_allows_and_its_results_are_the_callers(connected, tmp_path, monkeypatch):
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


def test_a_gpu_run_sees_the_gpus_it_asked_for_and_the_limits_it_was_given(connected: Connected, tmp_path: Path) -> None:
    ran = run_container(launcher(connected, ulimits=MEMLOCK), tmp_path, LOOK, devices=("3", "5"))
    assert ran.outcome.status == "ok", ran.outcome
    seen = json.loads(ran.log())
    assert (seen["devices"], seen["nvidia"]) == ("ids:3,5", ["nvidia3", "nvidia5"])
    assert seen["memlock"] == [1 << 16, 1 << 16]


PHASE = 'event("start")\nevent("phase", phase="train", iteration=1)\n'
WAIT = f"{PHASE}time.sleep(600)"
HANG = f"import faulthandler\nfaulthandler.register(signal.SIGUSR1)\n{WAIT}"
ELSEWHERE = {"source": "/nowhere", "target": "/work/runs/Scripted-1M-n1-r1", "read_only": False}


@pytest.mark.parametrize(
    ("kind", "words", "script", "settings", "job"),
    [
        ("oom_host", "ended by SIGKILL|MemoryError", PHASE + 'x = b"x" * (1 << 30)', {}, {"memory_bytes": 200 << 20}),
        ("disk_full", "No space left", 'open("/dev/shm/x", "wb").write(b"x" * (1 << 24))', {"shm_bytes": 1 << 20}, {}),
        ("gpu_unavailable", "device error: 99: unknown device", LOOK, {"ulimits": MEMLOCK}, {"devices": ("99",)}),
        ("image_missing", "o such image", "", {}, {"image": "sha256:" + "0" * 64}),
        ("config", "--copy-back", "", {}, {"mounts": (ELSEWHERE,)}),
        ("hang", r'File "', HANG, {}, {"silence_seconds": 5}),
    ],
    ids=["memory", "disk", "no such GPU", "no image", "a folder that it does not see", "silence"],
)
def test_why_a_container_fails_is_told_in_the_runtimes_words_and_ours(
    connected: Connected, tmp_path: Path, kind: str, words: str, script: str, settings: dict, job: dict
) -> None:
    failure = run_container(launcher(connected, **settings), tmp_path, script, **job).failure
    assert failure.kind == kind and re.search(words, "\n".join(failure.evidence))
    if "phase" in script:
        assert (failure.phase, failure.iteration) == ("train", 1)


def container_of(runtime: Runtime) -> str:
    return runtime.docker("ps", "--quiet", "--no-trunc", "--filter", "label=suite.run=Scripted-1M-n1-r1").stdout.strip()


def test_a_container_that_somebody_removes_is_a_lost_run_with_its_last_phase(connected, runtime, tmp_path):
    """It is killed first, and removed a moment later: a driver may look between."""
    other = once_started(tmp_path, lambda: runtime.docker("rm", "--force", container_of(runtime)))
    failure = run_container(launcher(connected), tmp_path, WAIT).failure
    other.join()
    assert (failure.kind, failure.phase, failure.iteration) == ("rank_lost", "train", 1)
    assert failure.evidence[0].startswith(
        ("the container was removed in mid-run", "the container was killed from outside")
    )


def test_all_that_a_container_prints_is_kept_to_the_last_byte(connected: Connected, tmp_path: Path) -> None:
    """The node is taken out of the way: the container prints 50 MB on both streams and ends without an outcome."""
    script = "import os; b = bytes(range(256)) * 256; [os.write(1 + i % 2, b) for i in range(800)]; os._exit(3)"
    launched = launcher(connected)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("suite.launch.docker.launcher.NODE", ("/opt/suite/bin/python", "-c", script))
        failure = run_container(launched, tmp_path, "").failure
    assert failure.kind == "unknown" and "ended with exit code 3" in failure.evidence[0]
    assert (tmp_path / "logs" / "container.log").stat().st_size == 800 * 65536


#: what OpenSSH does for `ssh -L LOCAL:REMOTE HOST cat`, with this machine in the place of the far one
SSH = """
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
    python_program(program, SSH)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_a_runtime_behind_ssh_gets_the_manifest_and_gives_the_results(connected, runtime, ssh, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", runtime.host.replace("unix://", "ssh://me@far:2222"))
    far = connect()
    assert far.facts.remote and far.host.startswith("ssh://me@far:2222/")
    ran = run_container(launcher(far), tmp_path, 'event("start")\nprint("said")\nevent("end", status="ok")', ranks=2)
    assert ran.outcome.status == "ok", ran.outcome
    assert [event["kind"] for event in ran.events] == ["start", "end"] and ran.log(1) == b"said\n"


def test_ssh_that_does_not_let_us_in_is_quoted(ssh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "ssh://me@far")
    with pytest.raises(UsageError, match=r"at ssh://me@far: me@far: Permission denied \(publickey\)\.; start it"):
        connect()
