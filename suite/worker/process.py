"""What every rank sets up with the kernel and with Python when it starts, and what it reads of the kernel."""

import ctypes
import faulthandler
import gc
import os
import signal
from contextlib import contextmanager
from functools import lru_cache
from typing import Iterator, Optional

_PR_SET_PDEATHSIG = 1
_IMPORTED_BY = os.getpid()


def how_started() -> str:
    """``spawned``: this process has imported its stack itself. ``forked``: from a process that had it imported."""
    return "spawned" if os.getpid() == _IMPORTED_BY else "forked"


def die_with_launcher() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux, prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def show_stacks_on_request() -> None:
    """On SIGUSR1 the stacks of all threads go to standard error: how a launcher learns where a rank hangs."""
    faulthandler.register(signal.SIGUSR1, all_threads=True)


@contextmanager
def without_collector() -> Iterator[None]:
    """Importing a stack makes hundreds of thousands of objects that stay: collecting among them is lost time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


_LONGEST_BYTES = 1 << 16
_RESET_PEAK = b"5"  # proc(5), /proc/pid/clear_refs: reset the peak resident set to the current one


def resident_bytes() -> int:
    return _field(b"\nVmRSS:")


def peak_resident_bytes() -> int:
    """Largest resident set since the last reset (VmHWM)."""
    return _field(b"\nVmHWM:")


def reset_peak_resident() -> None:
    os.pwrite(_descriptor("/proc/self/clear_refs", os.O_WRONLY), _RESET_PEAK, 0)


def _field(name: bytes) -> int:
    """A field of /proc/self/status, whose lines read ``name:<white space>number kB``."""
    return int(read_open("/proc/self/status").split(name, 1)[1].split(None, 1)[0]) * 1024


def read_open(path: str) -> bytes:
    """Of a file of the kernel, kept open because opening it costs more than reading; empty where it is not there.

    What it says of ``self`` is of the first process or thread that reads it.
    """
    try:
        return os.pread(_descriptor(path, os.O_RDONLY), _LONGEST_BYTES, 0)
    except OSError:
        return b""


@lru_cache(maxsize=None)
def _descriptor(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC)


def read_text(path: str) -> Optional[str]:
    """Without white space around it; None where it cannot be read."""
    try:
        with open(path) as file:
            return file.read().strip()
    except (OSError, ValueError):
        return None
