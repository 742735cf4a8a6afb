"""What every rank sets up with the kernel and with Python when it starts."""

import ctypes
import faulthandler
import gc
import signal
import sys
from contextlib import contextmanager
from typing import Iterator

_PR_SET_PDEATHSIG = 1
_started = "spawned"


def how_started() -> str:
    """``spawned``: this process has imported its stack itself. ``forked``: from a process that had it imported."""
    return _started


def note_fork() -> None:
    global _started
    _started = "forked"


def die_with_launcher() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux, prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


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
