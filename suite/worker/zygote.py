"""``python -m suite.worker.zygote SOCKET PARENT BACKEND DEVICE KERNELS ARCHITECTURE PACKAGE...``: imports a stack and
forks ranks that have it.

A launcher that starts ranks on one machine, run after run, talks to it on a socket (SOCK_SEQPACKET), in JSON: told
first whether it can fork (``{"is_fit"}``), the launcher sends ``{"module", "arguments", "variables", "memory_bytes"}``
(the last: the most that it may map, or null) with the descriptors of standard output and error for each rank, and is
answered ``{"pid"}`` by the rank itself, null where it cannot be one. What a rank then does is ``python -m MODULE
ARGUMENT...``, in the environment of this process and ``variables``.

Linux alone. This process is to be started in the environment of the ranks but for what differs from rank to rank.
"""

import array
import ctypes
import gc
import json
import os
import resource
import runpy
import socket
import sys
from contextlib import suppress
from itertools import groupby
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from suite.worker.process import die_with_launcher, without_collector
from suite.worker.rank import LAUNCH_VARIABLES

_LONGEST_REQUEST = 1 << 16
_STREAMS = 2  # standard output and error
#: what a rank runs: a module, and its arguments
Program = Tuple[str, List[str]]
#: pages one behind the other: their address, their bytes, and how madvise(2) has them mapped
Run = Tuple[int, int, int]
POPULATE_READ, POPULATE_WRITE = 22, 23  # since Linux 5.14
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ENTRY_BYTES = 8
_PRESENT, _OF_FILE = 1 << 63, 1 << 61  # of an entry of /proc/pid/pagemap


def main(arguments: List[str]) -> Optional[Program]:
    """Serve the launcher until it closes its end. Returns in a forked rank, with its program, or to end the process."""
    descriptor, launcher, *stack = arguments
    die_with_launcher()
    if os.getppid() != int(launcher):  # it ended before this process asked to end with it
        return None
    with socket.socket(fileno=int(descriptor)) as channel:
        channel.set_inheritable(False)
        asked = _import_stack(stack)
        try:
            pages = mapped_pages() if _is_fit(asked) else None
        except OSError:
            pages = None
        _answer(channel, is_fit=pages is not None)
        return None if pages is None else _serve(channel, int(launcher), pages)


def _import_stack(stack: List[str]) -> Set[str]:
    """Import what a rank of an engine backend imports; the rank's own variables that were read meanwhile."""
    plain = type(os.environ)
    asked: Set[str] = set()

    class Noting(plain):
        def __getitem__(self, name: str) -> str:
            asked.add(name)
            return super().__getitem__(name)

    os.environ.__class__ = Noting
    try:
        with without_collector():
            from suite.worker import session

            session.load_engine(*stack)
    finally:
        os.environ.__class__ = plain
    # what was imported stays: no collection in a rank need walk it again, which takes 0.3 s
    gc.freeze()
    return asked.intersection(LAUNCH_VARIABLES)


def _is_fit(asked: Set[str]) -> bool:
    """Whether a fork of this process would be what a rank is that imports the stack itself: what that read is as it is
    for any rank, it started no thread and no process, and opened no GPU."""
    import torch

    is_alone = len(os.listdir("/proc/self/task")) == 1 and not _has_children()
    files = [os.path.realpath("/proc/self/fd/" + name) for name in os.listdir("/proc/self/fd")]
    has_gpu = torch.cuda.is_initialized() or any(path.startswith("/dev/nvidia") for path in files)
    return is_alone and not asked and not has_gpu


def _has_children() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _serve(channel: socket.socket, launcher: int, pages: List[Run]) -> Optional[Program]:
    """Fork a rank for each request. Returns in a rank; None where the launcher is gone, or no rank can be forked."""
    while True:
        message, streams = _receive(channel)
        if not message:
            return None
        try:
            is_rank = _fork()
        except OSError:
            return None
        if is_rank:
            if os.getppid() != launcher:
                _answer(channel, pid=None)
                return None
            request = json.loads(message)
            os.setsid()
            for number, stream in enumerate(streams, 1):
                os.dup2(stream, number)
                os.close(stream)
            _answer(channel, pid=os.getpid())
            channel.close()
            _be_fresh(request["variables"], pages)
            if request["memory_bytes"] is not None:
                resource.setrlimit(resource.RLIMIT_AS, (request["memory_bytes"], request["memory_bytes"]))
            return request["module"], request["arguments"]
        for stream in streams:
            os.close(stream)


def _answer(channel: socket.socket, **fields: Any) -> None:
    channel.send(json.dumps(fields).encode())


def _receive(channel: socket.socket) -> Tuple[bytes, List[int]]:
    """A message with the descriptors that came with it; empty where the other end was closed."""
    streams = array.array("i")
    message, extra, _, _ = channel.recvmsg(_LONGEST_REQUEST, socket.CMSG_SPACE(_STREAMS * streams.itemsize))
    for _, _, data in extra:
        streams.frombytes(data)
    return message, list(streams)


def _fork() -> bool:
    """True in the new process. It is forked by one that ends at once: so the launcher, which adopts its orphaned
    descendants (PR_SET_CHILD_SUBREAPER), is its parent, waits for it and is told by the kernel how it ended.

    Raises OSError where there is no new process.
    """
    orphaned, orphan_it = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            os.close(orphan_it)
            if os.fork():
                os._exit(0)
        except OSError:
            os._exit(1)
        if not os.read(orphaned, 1):
            os._exit(1)  # the process that was asked for this rank has ended meanwhile
        os.close(orphaned)
        die_with_launcher()
        return True
    os.close(orphaned)
    try:
        if os.waitpid(helper, 0)[1]:
            raise OSError("a process was refused")
        os.write(orphan_it, b"1")
    finally:
        os.close(orphan_it)
    return False


def _be_fresh(variables: Dict[str, str], pages: List[Run]) -> None:
    """What a process that is started by itself has of its own."""
    os.environ.update(variables)
    # Python's own generator is seeded anew by every fork, and torch's has the same seed in every process.
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()
    prefault(pages)


def mapped_pages() -> List[Run]:
    """Those that are mapped from files, and those that the process has written and may write again.

    Raises OSError where the kernel does not tell.

    Linux copies the page table of memory that a process has written to a child and lets faults fill that of files
    (libraries, mostly); what was written is shared until one of the two writes again. A rank that imported its stack
    itself has all of these pages as its own. A forked one takes them before it begins, so that its resident set is that
    of any other rank and no iteration pays for a copy.
    """
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        return [run for line in lines for run in _runs(line, pagemap.fileno())]


def prefault(pages: List[Run]) -> None:
    """Map those of files, and copy those that are shared with another process."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    refused = [run for run in pages if madvise(*run)]
    if any(how == POPULATE_READ for _, _, how in refused):
        _read(pages)


def _runs(line: str, pagemap: int) -> Iterator[Run]:
    """The pages of a mapping, by its line: addresses, permissions, offset, device, inode, path."""
    addresses, permissions = line.split(None, 2)[:2]
    begin, end = (int(part, 16) for part in addresses.split("-"))
    if begin >> 63 or not permissions.startswith("r"):  # the kernel's own, or not to be touched
        return
    entries = array.array("Q")
    entries.frombytes(
        os.pread(pagemap, (end - begin) // _PAGE_BYTES * _ENTRY_BYTES, begin // _PAGE_BYTES * _ENTRY_BYTES)
    )
    is_own = permissions[1] == "w" and permissions[3] == "p"
    for kind, group in groupby(entry & (_PRESENT | _OF_FILE) for entry in entries):
        address, begin = begin, begin + sum(_PAGE_BYTES for _ in group)
        if kind == _PRESENT | _OF_FILE:
            yield address, begin - address, POPULATE_READ
        elif kind == _PRESENT and is_own:
            yield address, begin - address, POPULATE_WRITE


def _read(pages: List[Run]) -> None:
    """A byte of each page of a file; one that cannot be read is left to its own fault."""
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for first, size, how in pages:
            with suppress(OSError):
                for address in range(first, first + size if how == POPULATE_READ else first, _PAGE_BYTES):
                    os.pread(memory.fileno(), 1, address)


if __name__ == "__main__":
    program = main(sys.argv[1:])
    if program is not None:
        module, sys.argv[1:] = program
        runpy.run_module(module, run_name="__main__", alter_sys=True)
