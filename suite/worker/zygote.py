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
import gc
import json
import os
import resource
import runpy
import socket
import sys
from typing import Any, Dict, List, Optional, Set, Tuple

from suite.worker.pages import Run, mapped_pages, prefault
from suite.worker.process import die_with_launcher, note_fork, without_collector
from suite.worker.rank import LAUNCH_VARIABLES

_LONGEST_REQUEST = 1 << 16
_STREAMS = 2  # standard output and error


#: what a rank runs: a module, and its arguments
Program = Tuple[str, List[str]]


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
            _write_to(streams)
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
    for level, kind, data in extra:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            streams.frombytes(data[: len(data) - len(data) % streams.itemsize])
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


def _write_to(streams: List[int]) -> None:
    for number, stream in enumerate(streams, 1):
        os.dup2(stream, number)
        os.close(stream)


def _be_fresh(variables: Dict[str, str], pages: List[Run]) -> None:
    """What a process that is started by itself has of its own."""
    os.environ.update(variables)
    # Python's own generator is seeded anew by every fork, and torch's has the same seed in every process.
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()
    note_fork()
    prefault(pages)


if __name__ == "__main__":
    program = main(sys.argv[1:])
    if program is not None:
        module, sys.argv[1:] = program
        runpy.run_module(module, run_name="__main__", alter_sys=True)
