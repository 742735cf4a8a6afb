"""What keeps a trainer's processes together: nothing is left of them, however the rank that started them ends."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.worker.trainers import guardian
from suite.worker.trainers.processes import Processes, below
from tests.waiting import wait_until
from tests.worker.tiny import is_alive

#: a daemon in a session of its own, without a parent, that holds shared memory
DAEMON = """
import mmap, os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
with open(sys.argv[1], "wb+") as file:
    file.truncate(4096)
    held = mmap.mmap(file.fileno(), 4096)
open(sys.argv[2], "w").write(str(os.getpid()))
time.sleep(1000)
"""
#: a rank: it starts a guardian and waits
RANK = """
import subprocess, sys, time
guardian = subprocess.Popen([sys.executable, "-m", "suite.worker.trainers.guardian", *sys.argv[1:]],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
print(guardian.stdout.readline().decode().strip(), guardian.pid, flush=True)
time.sleep(1000)
"""


PIPES: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


def start(folder: Path, shared: Path, told: Path) -> tuple[subprocess.Popen[str], int]:
    """A rank whose guardian has a daemon, and the guardian's pid."""
    daemon = folder.parent / "daemon.py"
    daemon.write_text(DAEMON)
    rank = subprocess.Popen(
        [sys.executable, "-c", RANK, str(folder), sys.executable, str(daemon), str(shared), str(told)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    word, pid = rank.stdout.readline().split()
    assert word == "started"
    wait_until(lambda: told.exists() and told.read_text())
    return rank, int(pid)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_stays_behind_a_rank_that_ends(end: signal.Signals, tmp_path: Path) -> None:
    folder, told, shared = tmp_path / "ray", tmp_path / "pid", Path(f"/dev/shm/suite-test-{os.getpid()}")
    folder.mkdir()
    (folder / "socket").write_text("")
    rank, guardian = start(folder, shared, told)
    daemon = int(told.read_text())
    assert daemon in below(guardian), "a daemon that left everything is still the guardian's"
    assert shared.exists()
    status = Path(f"/proc/{guardian}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert caught & 1 << (number - 1)
        os.kill(guardian, number)
    assert is_alive(daemon), "signals to everybody end it no sooner than its rank"
    rank.send_signal(end)
    rank.wait()
    wait_until(lambda: not is_alive(guardian))
    assert not is_alive(daemon)
    assert not folder.exists()
    assert not shared.exists()


#: a process that holds a semaphore, which is mapped under another name than it has
HOLDER = """
import multiprocessing, sys
multiprocessing.set_start_method("spawn")
held = multiprocessing.Semaphore()
print("held", held._semlock.name, flush=True)
input()
"""


def test_shared_memory_and_semaphores_are_known_while_their_process_lives_and_those_of_others_are_left() -> None:
    memory = guardian._SharedMemory()
    others = Path(f"/dev/shm/suite-test-{os.getpid()}-other")
    child = subprocess.Popen([sys.executable, "-c", HOLDER], **PIPES)
    semaphore = Path("/dev/shm/sem." + child.stdout.readline().split()[1].decode().lstrip("/"))
    try:
        others.write_text("of somebody else")
        for _ in range(guardian._LOOKS_UNTIL_ASKED):
            memory.look()
    finally:
        for pid in (*below(child.pid), child.pid):  # its tracker of semaphores too
            os.kill(pid, signal.SIGKILL)
        child.wait()
    assert semaphore.exists()
    memory.forget(set())
    assert not semaphore.exists() and others.exists()
    others.unlink()


#: a rank that uses a folder of its own and leaves files of all kinds there
WRITER = """
import os, tempfile, time
from suite.worker.trainers.scratch import use_own_folder
folder = use_own_folder()
open(tempfile.mkstemp()[1] + ".lock", "w").close()
os.makedirs(os.environ["HF_DATASETS_CACHE"])
print(folder, flush=True)
time.sleep(1000)
"""


def test_what_a_rank_writes_by_the_way_goes_with_it_and_its_home_is_not_written_to(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(0o500)
    variables = {**os.environ, "HOME": str(home), "TMPDIR": "/tmp"}
    rank = subprocess.Popen([sys.executable, "-c", WRITER], stdout=subprocess.PIPE, env=variables)
    folder = Path(rank.stdout.readline().decode().strip())
    assert {entry.suffix for entry in folder.iterdir()} == {"", ".lock"} and (folder / "datasets").is_dir()
    assert folder.stat().st_mode & 0o077 == 0 and list(home.iterdir()) == []
    rank.kill()
    rank.wait()
    wait_until(lambda: not folder.exists())


def test_it_ends_with_the_code_of_a_command_that_fails(tmp_path: Path) -> None:
    command = ["suite.worker.trainers.guardian", str(tmp_path / "none"), "sh", "-c", "exit 3"]
    with subprocess.Popen([sys.executable, "-m", *command], **PIPES) as done:
        assert done.stdout.read() == b"", "it never told of a start"
        assert done.wait() == 3


def test_processor_time_of_ended_processes_still_counts() -> None:
    parent = subprocess.Popen(["sh", "-c", 'python3 -c "while True: pass" & wait; sleep 100'], start_new_session=True)
    try:
        found = Processes(parent.pid)
        wait_until(lambda: found.cpu_seconds() > 0.2)
        before = found.cpu_seconds()
        assert found.peak_resident_bytes() > 1 << 20
        (busy,) = below(parent.pid)
        os.kill(busy, signal.SIGKILL)
        wait_until(lambda: not is_alive(busy))
        assert found.cpu_seconds() >= before
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
