"""Ranks that are forked from a process that has their stack imported, instead of importing it each.

Such a process, a zygote, is ``python -m suite.worker.zygote`` under the stack's interpreter, in the environment of the
ranks. It forks twice, so that a rank becomes a child of this process, which adopts orphans (``child_subreaper``). What
a zygote cannot do is never a failure of a run: its ranks are then started by themselves.
"""

import json
import os
import selectors
import signal
import socket
import subprocess
import threading
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from suite.launch.job import Job
from suite.launch.processes import ForkedProcess, descendants, end_with_children
from suite.launch.requests import StopRequests
from suite.launch.watching import TURNS
from suite.spec.typed import LONGEST_WAIT_SECONDS

#: stacks that are kept imported at a time: each holds some hundred MB
_MOST = 4
_FORK_SECONDS = 30.0
_RANK_VARIABLES = (
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"),
    TURNS,
)


class ForkError(Exception):
    """A zygote did not fork a rank."""


class Surroundings(NamedTuple):
    """All that an import can depend on: a rank is forked only where none of it differs."""

    python: str
    stack: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    folder: str


class Zygote:
    """A process that imports a stack at once and forks ranks when it is asked to."""

    def __init__(self, around: Surroundings) -> None:
        """Raises OSError when it cannot be started."""
        self._channel, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = os.fdopen(os.memfd_create("zygote"), "r+b", buffering=0)
        self._asking = threading.Lock()
        with there:
            end = str(there.fileno())
            try:
                self.process = subprocess.Popen(
                    (around.python, "-m", "suite.worker.zygote", end, str(os.getpid()), *around.stack),
                    env=dict(around.environment),
                    cwd=around.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=self._said,
                    stderr=self._said,
                    start_new_session=True,
                    pass_fds=(there.fileno(),),
                )
            except OSError:
                self._channel.close()
                self._said.close()
                raise

    def is_fit(self, seconds: float, requests: StopRequests) -> bool:
        """Whether it has imported its stack in time and can fork it, and nobody asks the driver to stop."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(requests.descriptor, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(seconds)]
        with suppress(ForkError):
            return ready == [self._channel] and self._answer() == {"is_fit": True}
        return False

    def fork(
        self, argv: tuple[str, ...], memory_bytes: int | None, variables: Mapping[str, str], log: int, is_speaker: bool
    ) -> ForkedProcess:
        """A rank of this command, ``python -m MODULE ARGUMENT...``. Raises ForkError."""
        _, _, module, *rest = argv
        ours, theirs = os.pipe() if is_speaker else (None, None)
        asked = {"module": module, "arguments": rest, "variables": dict(variables), "memory_bytes": memory_bytes}
        try:
            # what the stack printed while it was imported belongs into the log of each rank
            said = self._said.fileno()
            os.write(log, os.pread(said, os.fstat(said).st_size, 0))
            with self._asking:
                self._channel.settimeout(_FORK_SECONDS)
                socket.send_fds(self._channel, [json.dumps(asked).encode()], [log if theirs is None else theirs, log])
                pid = self._answer().get("pid")
            if not isinstance(pid, int):
                raise ForkError("no rank was forked")
        except (OSError, ValueError, ForkError) as error:  # closed meanwhile, among others
            if ours is not None:
                os.close(ours)
            raise ForkError(str(error)) from error
        finally:
            if theirs is not None:
                os.close(theirs)
        return ForkedProcess(pid, None if ours is None else os.fdopen(ours, "rb", buffering=0))

    def close(self) -> None:
        """End it, with whatever its imports have started. Ranks that it forked are not its children."""
        self._channel.close()
        end_with_children(self.process)
        self._said.close()

    def _answer(self) -> dict[str, Any]:
        try:
            return dict(json.loads(self._channel.recv(4096)))
        except (OSError, ValueError, TypeError) as error:
            raise ForkError(f"no answer: {error}") from error


class Zygotes:
    """Those of a launcher, by their surroundings: started when first asked for, kept until the launcher is gone. One
    ends with the thread that started it: where several threads ask, one of its own starts it."""

    def __init__(self) -> None:
        self._kept: dict[Surroundings, Zygote | None] = {}  # None: found unfit, and not asked again
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._finalizer = weakref.finalize(self, _end, self._kept)

    def find(self, job: Job, variables: Mapping[str, str], requests: StopRequests) -> Zygote | None:
        """One that can fork the ranks of this job; None where they are to start by themselves. ``variables``: of a
        rank, beside those of the job and of this process."""
        around = surroundings(job, variables)
        if threading.current_thread() is threading.main_thread():
            return self._find(job, around, requests)
        return self._thread.submit(self._find, job, around, requests).result()

    def processes(self) -> set[int]:
        """Ids of all that are kept, and of what they have started."""
        pids = {zygote.process.pid for zygote in self._kept.values() if zygote is not None}
        return pids.union(*map(descendants, pids))

    def _find(self, job: Job, around: Surroundings, requests: StopRequests) -> Zygote | None:
        known = self._kept.get(around)
        if around in self._kept and (known is None or known.process.poll() is None):
            return known
        _end(self._kept, around)
        while len(self._kept) >= _MOST:
            _end(self._kept, next(iter(self._kept)))
        patience = min(job.limits.run_seconds, job.limits.silence_seconds, LONGEST_WAIT_SECONDS)
        with suppress(OSError):
            self._kept[around] = zygote = Zygote(around)
            if not zygote.is_fit(patience, requests):
                zygote.close()
                self._kept[around] = None
        return self._kept.get(around)

    def close(self) -> None:
        """End all; also done when the launcher is collected, or the driver ends."""
        self._finalizer()


def can_fork(job: Job) -> bool:
    """Whether a zygote may be tried for this job: the suite's own worker on a stack that somebody named."""
    return (
        hasattr(os, "pidfd_open")
        and signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN  # ends of children would be nobody's to ask for
        and bool(job.stack)
        and job.argv[1:3] == ("-m", "suite.worker")
    )


def surroundings(job: Job, variables: Mapping[str, str]) -> Surroundings:
    """Those of the job's ranks as this process would start them."""
    environment = {**os.environ, **job.env, **variables}
    return Surroundings(
        python=job.argv[0],
        stack=job.stack,
        environment=tuple(sorted((name, environment[name]) for name in environment if name not in _RANK_VARIABLES)),
        folder=job.working_directory or os.getcwd(),
    )


def _end(kept: dict[Surroundings, Zygote | None], *which: Surroundings) -> None:
    """Those of these surroundings; all, where none are given."""
    for around in which or (*kept,):
        zygote = kept.pop(around, None)
        if zygote is not None:
            zygote.close()
