"""What keeps a trainer's processes together: nothing is left of them, however the rank that started them ends."""

from __future__ import annotations

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


@pytest.fixture
def shared() -> Path:
    """A name in shared memory."""
    return Path(f"/dev/shm/suite-test-{os.getpid()}")


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
    wait_until(lambda: told.exists() and told.read_text())
    return rank, int(pid)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_stays_behind_a_rank_that_ends(end: signal.Signals, tmp_path: Path, shared: Path) -> None:
    folder, told = tmp_path / "ray", tmp_path / "pid"
    folder.mkdir()
    (folder / "socket").write_text("")
    rank, guardian = start(folder, shared, told)
    daemon = int(told.read_text())
    assert daemon in below(guardian), "a daemon that left everything is still the guardian's"
    assert shared.exists()
    status = Path(f"/proc/{guardian}/status").read_text()
    ignored = int(next(line for line in status.splitlines() if line.startswith("SigIgn")).split()[1], 16)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        assert ignored & 1 << (number - 1), "signals to everybody end it no sooner than its rank"
    rank.send_signal(end)
    rank.wait()
    wait_until(lambda: not is_alive(guardian))
    assert not is_alive(daemon)
    assert not folder.exists()
    assert not shared.exists()


def test_shared_memory_is_known_while_its_process_lives_and_that_of_others_is_left(shared: Path) -> None:
    memory = guardian._SharedMemory()
    others = shared.with_name(f"{shared.name}-other")
    held = (
        'import mmap, sys; file = open(sys.argv[1], "wb+"); file.truncate(4096); held = mmap.mmap(file.fileno(), 4096)'
    )
    child = subprocess.Popen(
        [sys.executable, "-c", held + '; print("held", flush=True); input()', str(shared)], **PIPES
    )
    try:
        others.write_text("of somebody else")
        assert child.stdout is not None and child.stdout.readline() == b"held\n"
        for _ in range(guardian._LOOKS_UNTIL_ASKED):
            memory.look()
    finally:
        child.kill()
        child.wait()
    assert str(shared) in memory.own and str(others) not in memory.own
    guardian._forget(memory.own)
    assert not shared.exists() and others.exists()
    others.unlink()


def test_it_ends_with_the_code_of_a_command_that_fails(tmp_path: Path) -> None:
    command = ["suite.worker.trainers.guardian", str(tmp_path / "none"), "sh", "-c", "exit 3"]
    with subprocess.Popen([sys.executable, "-m", *command], **PIPES) as done:
        assert done.stdout is not None and done.stdout.read() == b"", "it never told of a start"
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
