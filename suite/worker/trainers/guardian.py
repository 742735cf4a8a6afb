"""``python -m suite.worker.trainers.guardian PATHS [COMMAND...]``: keeps a trainer's processes together and ends them.

It runs the command, which may leave daemons behind, and lives as long as its standard input is open: the rank that
started it holds the other end, and the kernel closes that however the rank ends. Then everything below the guardian is
killed, also what left its session or lost its parent, and forgotten shared memory and ``PATHS`` are removed: patterns
with ``os.pathsep`` between them. It ends at once where the command fails. Exit code: the command's.
"""

import contextlib
import ctypes
import glob
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import List, Set, Tuple

from suite.worker.trainers.processes import kill_below, shared_memory_below

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.2
_LOOKS_UNTIL_ASKED = 5
_FOLDER = "/dev/shm"
_REMOVALS = 25
#: written to standard output once the command has ended well: what it started goes on
STARTED = b"started\n"


def main(arguments: List[str]) -> int:
    paths, command = arguments[0], arguments[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # meant for the ranks, whose end comes by the pipe; what is started has the usual ones
        signal.signal(number, lambda *_: None)
    try:
        if not command:
            os.read(0, 1)
            return 0
        return _keep(command)
    finally:
        _remove(paths)


def _keep(command: List[str]) -> int:
    """The command and all that it starts, until the rank ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    memory = _SharedMemory()
    try:
        told = False
        while not (select.select([0], [], [], _LOOK_SECONDS)[0] and os.read(0, 1) == b""):
            _reap(child)
            memory.look()
            if child.returncode:
                break
            if child.returncode == 0 and not told:
                os.write(1, STARTED)
                told = True
    finally:
        mapped = shared_memory_below(os.getpid())
        kill_below(os.getpid())
        memory.forget(mapped)
    return child.returncode or 0


class _SharedMemory:
    """Files of /dev/shm that processes below this one have, learnt while they live: Ray kills them by itself as soon as
    its driver is gone, and then nobody can be asked.

    To look at a folder costs nothing, to ask processes some milliseconds: they are asked once about files that have
    been there for a while.
    """

    def __init__(self) -> None:
        self._own: Set[Tuple[str, int]] = set()
        self._looks = dict.fromkeys(_files(), _LOOKS_UNTIL_ASKED)

    def look(self) -> None:
        self._looks = {file: self._looks.get(file, 0) + 1 for file in _files()}
        asked = {file for file, looks in self._looks.items() if looks == _LOOKS_UNTIL_ASKED}
        if asked:
            mapped = shared_memory_below(os.getpid())
            self._own |= {file for file in asked if file[1] in mapped}

    def forget(self, mapped: Set[int]) -> None:
        """Remove those files, and the ``mapped``, as far as they are still there."""
        for file in _files():
            if file in self._own or file[1] in mapped:
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(_FOLDER, file[0]))


def _files() -> Set[Tuple[str, int]]:
    """Name and inode of what lies in /dev/shm."""
    try:
        with os.scandir(_FOLDER) as entries:
            return {(entry.name, entry.inode()) for entry in entries}
    except OSError:
        return set()


def _remove(paths: str) -> None:
    """Again and again for a while: what another guardian is about to end may still write there."""
    for _ in range(_REMOVALS):
        found = [path for pattern in paths.split(os.pathsep) for path in glob.glob(pattern)]
        for path in found:
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(path)
        if not found:
            return
        time.sleep(_LOOK_SECONDS)


def _reap(child: subprocess.Popen) -> None:
    """Wait for what has ended, so that no zombies stay: the command, and orphans, which became children of this one."""
    with contextlib.suppress(ChildProcessError):
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return
            if found.si_pid == child.pid:
                child.poll()
            else:
                os.waitpid(found.si_pid, os.WNOHANG)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
