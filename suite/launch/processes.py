"""Processes of a run: waiting for them, signalling them, leaving none behind, and who was killed for want of memory.

A control group counts such kills, so that a neighbour's end is not taken for a rank's: in version 2 for itself and all
below it (https://docs.kernel.org/admin-guide/cgroup-v2.html), in version 1 for itself alone, where ranks stay.
"""

import ctypes
import os
import re
import resource
import signal
import subprocess
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import IO, NamedTuple

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


class ForkedProcess:
    """A child that another process forked for this one, with what ``subprocess.Popen`` has of one it started itself."""

    def __init__(self, pid: int, stdout: IO[bytes] | None) -> None:
        self.pid, self.stdout = pid, stdout
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Exit code, negative for a signal. Raises psutil.TimeoutExpired."""
        if self.returncode is None:
            code = psutil.Process(self.pid).wait(timeout)
            assert code is not None, "only its parent, this process, can wait for it"
            self.returncode = int(code)
        return self.returncode


RankProcess = subprocess.Popen | ForkedProcess


def exit_descriptor(process: RankProcess) -> int:
    """A file descriptor that becomes readable when the process ends; the caller closes it."""
    if hasattr(os, "pidfd_open"):
        return os.pidfd_open(process.pid)
    reading, writing = os.pipe()

    def wait_and_close() -> None:
        process.wait()
        os.close(writing)

    threading.Thread(target=wait_and_close, daemon=True).start()
    return reading


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal, so that it is told something by it rather than ended."""
    try:
        mask = Path(f"/proc/{pid}/status").read_text().partition("SigCgt:")[2].split()[0]
    except (OSError, IndexError):
        return False
    return bool(int(mask, 16) >> (number - 1) & 1)


def signal_group(process: RankProcess, number: signal.Signals) -> None:
    """Signal the group that a process leads; nothing once it was waited for: its id may be another's by then."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def signed(exit_code: int) -> int:
    """An exit code of a shell or a container runtime: as a signal's, which is negative, where it means one."""
    return 128 - exit_code if 128 < exit_code <= 192 else exit_code


def limit_number(name: str) -> int:
    """The resource module's number of a limit such as ``memlock``. Raises KeyError when there is none."""
    return vars(resource)[f"RLIMIT_{name.upper()}"]


@cache
def c_library() -> ctypes.CDLL:
    """Functions of the C library; one object for all, since each has a class of its own."""
    return ctypes.CDLL(None, use_errno=True)


@contextmanager
def child_subreaper() -> Iterator[None]:
    """Orphans of the ranks become children of this process while the block runs, so that they can be found."""
    libc, before = c_library(), ctypes.c_int()
    libc.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def end_with_this_process(memory_bytes: int | None) -> Callable[[], None]:
    """For ``preexec_fn``: have the kernel kill a child when the thread that starts it ends, and limit its address
    space. What is called between fork and exec is looked up here, and takes no lock that another thread may hold."""
    prctl, driver = c_library().prctl, os.getpid()

    def set_up() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL.value, 0, 0, 0)
        if memory_bytes is not None:
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        if os.getppid() != driver:  # it ended before this process asked to end with it
            os._exit(1)

    return set_up


def below(pid: int | None = None) -> list[psutil.Process]:
    """All processes below one, this one unless told."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def descendants(pid: int | None = None) -> set[int]:
    return {child.pid for child in below(pid)}


def end_with_children(process: subprocess.Popen) -> None:
    """Kill a process that leads a group, with all processes below it, and wait for them."""
    children = below(process.pid)
    signal_group(process, signal.SIGKILL)
    if process.returncode is None:
        process.wait()
        with suppress(ChildProcessError):  # those of its group that this process adopted when it ended by itself
            while True:
                os.waitpid(-process.pid, 0)
    _kill(children)


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=1.0)


def sweep(before: Collection[int] | None, sessions: Collection[int], patience_seconds: float) -> None:
    """End what is left of a run: descendants of this process that are not in ``before``, and members of ``sessions``,
    or these alone where other runs go on (null). Helpers have ``patience_seconds`` to end by themselves."""
    psutil.wait_procs(_left(before, sessions), timeout=patience_seconds)
    for _ in range(10):  # a process may have started another while it was killed
        left = _left(before, sessions)
        if not left:
            return
        _kill(left)


def _left(before: Collection[int] | None, sessions: Collection[int]) -> list[psutil.Process]:
    found = {} if before is None else {process.pid: process for process in below() if process.pid not in before}
    for pid in psutil.pids():
        try:
            if pid not in found and os.getsid(pid) in sessions:
                found[pid] = psutil.Process(pid)
        except (ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            continue
    return list(found.values())


class OomKills(NamedTuple):
    """A counter's value, and which counter it is."""

    kills: int
    counter: str


#: by the name of a hierarchy in /proc/self/cgroup (version 2 has none): the file that counts, below all mounts
_COUNTERS = {"": "memory.events", "memory": "memory/memory.oom_control"}


def oom_kills(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> OomKills | None:
    """Of this process' control group, or the nearest above it that counts, or the machine; ``None``: nobody says."""
    for path in (*_counters(proc, groups), proc / "vmstat"):
        count = re.search(r"^oom_kill (\d+)$", _text(path), re.MULTILINE)
        if count:
            whose = "the whole machine" if path.name == "vmstat" else "the run's control group"
            return OomKills(int(count[1]), f"oom_kill in {path.name} of {whose}")
    return None


def _counters(proc: Path, groups: Path) -> Iterator[Path]:
    """Of this process' group and those above it, as they are mounted; a container may not see its own."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        hierarchy, _, own = line.partition(":")[2].partition(":")
        if hierarchy in _COUNTERS and own.startswith("/") and ".." not in Path(own).parts:  # what this process may see
            counter = groups / _COUNTERS[hierarchy]
            folder = counter.parent / own.lstrip("/")
            above = (each for each in folder.parents if each.is_relative_to(counter.parent))
            yield from (each / counter.name for each in (folder, *above))


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
