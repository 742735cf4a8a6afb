"""``python -m suite.worker.trainers.guardian FOLDER COMMAND...``: keeps a trainer's processes together and ends them.

It runs the command, which may leave daemons behind, and lives as long as its standard input is open: the rank that
started it holds the other end, and the kernel closes that however the rank ends. Then everything below the guardian is
killed, also what left its session or lost its parent, and ``FOLDER`` and forgotten shared memory are removed. It ends
at once where the command fails. Exit code: the command's.
"""

import ctypes
import os
import selectors
import shutil
import signal
import subprocess
import sys
from typing import Dict, List, Set

from suite.worker.trainers.processes import kill_below, shared_memory_below

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.2
_LOOKS_UNTIL_ASKED = 5
_FOLDER = "/dev/shm"
#: written to standard output once the command has ended well: what it started goes on
STARTED = b"started\n"


def main(arguments: List[str]) -> int:
    folder, command = arguments[0], arguments[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the ranks, whose end comes by the pipe
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, preexec_fn=_usual_signals)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    memory = _SharedMemory()
    try:
        told = False
        while not (selector.select(_LOOK_SECONDS) and os.read(0, 1) == b""):
            _reap(child)
            memory.look()
            if child.returncode:
                break
            if child.returncode == 0 and not told:
                os.write(1, STARTED)
                told = True
    finally:
        _forget(kill_below(os.getpid()) | memory.own)
        shutil.rmtree(folder, ignore_errors=True)
    return child.returncode or 0


class _SharedMemory:
    """``own``: names in /dev/shm that processes below this one have, learnt while they live: Ray kills them by itself
    as soon as its driver is gone, and then nobody can be asked.

    To look at a folder costs nothing, to ask processes some milliseconds: they are asked once about names that have
    been there for a while.
    """

    def __init__(self) -> None:
        self.own: Set[str] = set()
        self._known = set(_names())
        self._looks: Dict[str, int] = {}

    def look(self) -> None:
        names = [name for name in _names() if name not in self._known]
        self._looks = {name: self._looks.get(name, 0) + 1 for name in names}
        if _LOOKS_UNTIL_ASKED in self._looks.values():
            self._known.update(names)
            self.own |= shared_memory_below(os.getpid()).intersection(os.path.join(_FOLDER, name) for name in names)


def _names() -> List[str]:
    try:
        return os.listdir(_FOLDER)
    except OSError:
        return []


def _usual_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def _reap(child: subprocess.Popen) -> None:
    """Wait for what has ended, so that no zombies stay: the command, and orphans, which became children of this one."""
    child.poll()
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if found is None:
            return
        if found.si_pid == child.pid:
            child.poll()
        else:
            os.waitpid(found.si_pid, os.WNOHANG)


def _forget(names: Set[str]) -> None:
    for name in names:
        if name.endswith(" (deleted)"):
            continue
        try:
            os.unlink(name)
        except OSError:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
