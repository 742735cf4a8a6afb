"""What keeps a trainer's processes together: nothing is left of them, however the rank that started them ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from suite.worker.trainers.processes import Processes, below

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


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


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
    assert rank.stdout is not None
    word, pid = rank.stdout.readline().split()
    assert word == "started"
    wait_for(lambda: told.exists() and told.read_text())
    return rank, int(pid)


def test_nothing_stays_behind_a_killed_rank(tmp_path: Path) -> None:
    folder, shared, told = tmp_path / "ray", Path(f"/dev/shm/suite-test-{os.getpid()}"), tmp_path / "pid"
    folder.mkdir()
    (folder / "socket").write_text("")
    rank, guardian = start(folder, shared, told)
    daemon = int(told.read_text())
    assert daemon in below(guardian), "a daemon that left everything is still the guardian's"
    assert shared.exists()
    rank.kill()
    rank.wait()
    wait_for(lambda: not is_alive(guardian))
    assert not is_alive(daemon)
    assert not folder.exists()
    assert not shared.exists()


def test_shared_memory_of_a_process_that_was_killed_before_the_rank_is_removed_too(tmp_path: Path) -> None:
    folder, shared, told = tmp_path / "ray", Path(f"/dev/shm/suite-test-{os.getpid()}"), tmp_path / "pid"
    others = Path(f"/dev/shm/suite-test-other-{os.getpid()}")
    folder.mkdir()
    rank, guardian = start(folder, shared, told)
    try:
        others.write_text("of somebody else")
        time.sleep(3)
        os.kill(int(told.read_text()), signal.SIGKILL)
        rank.kill()
        rank.wait()
        wait_for(lambda: not is_alive(guardian))
        assert not shared.exists()
        assert others.exists()
    finally:
        others.unlink()


def test_signals_to_everybody_do_not_stop_the_guardian_before_it_cleared_up(tmp_path: Path) -> None:
    folder, shared, told = tmp_path / "ray", Path(f"/dev/shm/suite-test-{os.getpid()}"), tmp_path / "pid"
    folder.mkdir()
    rank, guardian = start(folder, shared, told)
    os.kill(guardian, signal.SIGTERM)
    os.kill(guardian, signal.SIGINT)
    time.sleep(0.3)
    assert is_alive(guardian)
    rank.terminate()
    rank.wait()
    wait_for(lambda: not is_alive(guardian))
    assert not folder.exists()
    assert not shared.exists()


def test_it_ends_with_the_code_of_a_command_that_fails(tmp_path: Path) -> None:
    done = subprocess.Popen(
        [sys.executable, "-m", "suite.worker.trainers.guardian", str(tmp_path / "none"), "sh", "-c", "exit 3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert done.stdin is not None and done.stdout is not None
    assert done.stdout.read() == b"", "it never told of a start"
    assert done.wait() == 3
    done.stdin.close()
    done.stdout.close()


def test_processor_time_of_ended_processes_still_counts() -> None:
    parent = subprocess.Popen(["sh", "-c", 'python3 -c "while True: pass" & wait; sleep 100'], start_new_session=True)
    try:
        found = Processes(parent.pid)
        wait_for(lambda: found.cpu_seconds() > 0.2)
        before = found.cpu_seconds()
        assert found.peak_resident_bytes() > 1 << 20
        for pid in below(parent.pid):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not any(map(is_alive, below(parent.pid))) or found.cpu_seconds() >= before)
        assert found.cpu_seconds() >= before
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
