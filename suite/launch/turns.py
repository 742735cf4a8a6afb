"""Who works when: rows that were started together, one of which has its turn while the others wait.

Each rank connects to a Unix stream socket of the driver and names itself, ``{"run": ID, "rank": N}`` in a line. It
sends ``?`` for a turn and gets ``!`` when that of its row has come. Asking again ends the turn, and so does the end of
the run. A round of turns begins when every row that goes on waits with all of its ranks.

Whoever watches a run, ``{"run": ID, "watches": true}``, may ask how many of its last so many seconds it waited: a
number in a line each way. What a run waits is neither silence nor time that it takes.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from secrets import token_hex
from typing import NamedTuple

from suite.launch.job import Job, Mount
from suite.launch.turn_order import balanced_orders

#: address of the socket: a path, or behind ``@`` an abstract name (unix(7)), of which no driver leaves anything
VARIABLE = "SUITE_TURNS"
_LONGEST_LINE, _ANSWER_SECONDS = 4096, 30.0
#: pid, uid and gid of the other end (unix(7), SO_PEERCRED)
_CREDENTIALS = struct.Struct("3i")


class Start(NamedTuple):
    """Runs that are started together: ``rows`` are their ids; where their ranks ask for turns; the socket's folder."""

    id: str
    rows: tuple[str, ...]
    address: str
    folder: str | None

    def admit(self, job: Job) -> Job:
        """The job, told where turns are given."""
        mounts = () if self.folder is None else (Mount(source=self.folder, target=self.folder),)
        return job.model_copy(update={"env": {**job.env, VARIABLE: self.address}, "mounts": (*job.mounts, *mounts)})


class Listener:
    """The driver's socket: an abstract one, or one in a folder of its own where ``shared`` with containers."""

    def __init__(self, shared: bool) -> None:
        self.folder = tempfile.mkdtemp(prefix="suite-") if shared or sys.platform != "linux" else None
        self.address = f"@suite-{token_hex(8)}" if self.folder is None else f"{self.folder}/turns"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(_bound(self.address))
        self.socket.listen()

    def accept(self) -> socket.socket | None:
        """Whoever connects; an abstract name is open to other users of this host, who are sent away."""
        channel, _ = self.socket.accept()
        if self.folder is None:
            told = channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            if _CREDENTIALS.unpack(told)[1] not in (os.getuid(), 0):
                channel.close()
                return None
        return channel

    def close(self) -> None:
        """Once or several times."""
        self.socket.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


class _Row:
    """A row: its ranks that are there, those that have asked, and since when all of them wait (monotonic)."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self.there: dict[int, socket.socket] = {}
        self._asked: set[int] = set()
        self.has_turn = self.has_lost = self.is_over = False
        self._waits: list[tuple[float, float]] = []
        self._since: float | None = None

    @property
    def waits(self) -> bool:
        return self._since is not None

    @property
    def is_there(self) -> bool:
        return self.has_lost or self.is_over or len(self.there) == self._ranks

    def greet(self, rank: object, channel: socket.socket) -> bool:
        """Whether there is such a rank, and it is new."""
        if self.is_over or not isinstance(rank, int) or rank in self.there or not 0 <= rank < self._ranks:
            return False
        self.there[rank] = channel
        return True

    def ask(self, rank: int) -> None:
        self._asked.add(rank)
        if len(self._asked) == self._ranks and not self.has_lost and not self.waits:
            self.has_turn, self._since = False, time.monotonic()

    def lose(self, rank: int) -> None:
        """A rank has ended. The row waits no more: it is up to its launcher to end the others."""
        del self.there[rank]
        self.has_lost = True
        self._stop_waiting()

    def begin_turn(self) -> None:
        self._stop_waiting()
        self._asked.clear()
        self.has_turn = True
        for channel in self.there.values():
            with suppress(OSError):  # that it has ended is told by its connection
                channel.send(b"!")

    def end(self) -> None:
        self._stop_waiting()
        self.is_over, self.has_turn = True, False

    def waited(self, seconds: float) -> float:
        """Of the last so many seconds."""
        now = time.monotonic()
        waits = self._waits if self._since is None else [*self._waits, (self._since, now)]
        return sum(max(0.0, end - max(begin, now - seconds)) for begin, end in waits)

    def _stop_waiting(self) -> None:
        if self._since is not None:
            self._waits.append((self._since, time.monotonic()))
            self._since = None


class _Caller:
    """A connection: whose it is, once that was said, and what was said since and not understood yet."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.row: _Row | None = None
        self.rank: int | None = None
        self.said = b""


class Arbiter:
    """Gives the rows of one start their turns. It registers with a selector whose owner calls what is due there."""

    def __init__(
        self, selector: selectors.BaseSelector, listener: Listener, ranks: Mapping[str, int], seed: str
    ) -> None:
        """``ranks``: how many, by the id of the run. ``seed`` draws the order."""
        self._selector, self._listener = selector, listener
        self._rows = {run: _Row(number) for run, number in ranks.items()}
        self._orders = balanced_orders(sorted(ranks), seed)
        self._queue: list[_Row] = []
        self._callers: set[_Caller] = set()
        self._listens = True
        selector.register(listener.socket, selectors.EVENT_READ, self._accept)

    def end(self, run: str) -> None:
        """A run is over: the others go on without it."""
        self._rows[run].end()
        self._go_on()

    def close(self) -> None:
        """No more turns. The end of their connection tells ranks that still wait."""
        self._stop_listening()
        for caller in [*self._callers]:
            self._drop(caller)

    def _accept(self) -> None:
        channel = self._listener.accept() if self._listens else None
        if channel is not None:
            caller = _Caller(channel)
            self._callers.add(caller)
            self._selector.register(channel, selectors.EVENT_READ, partial(self._hear, caller))

    def _hear(self, caller: _Caller) -> None:
        if caller not in self._callers:  # it was sent away meanwhile
            return
        data = b""
        with suppress(OSError):
            data = caller.channel.recv(_LONGEST_LINE)
        caller.said += data
        if not data or not self._is_understood(caller):
            self._drop(caller)
            if caller.row is not None and caller.rank is not None:
                caller.row.lose(caller.rank)
        self._go_on()

    def _is_understood(self, caller: _Caller) -> bool:
        """Do what is asked for; whether it made sense."""
        while b"\n" in caller.said and caller.rank is None:
            line, _, caller.said = caller.said.partition(b"\n")
            try:
                said = json.loads(line)
                if caller.row is None:
                    self._greet(caller, said)
                else:
                    caller.channel.send(b"%r\n" % caller.row.waited(float(said)))
            except (ValueError, TypeError, KeyError, OSError, RecursionError):
                return False
        if caller.row is not None and caller.rank is not None and caller.said:
            caller.row.ask(caller.rank)
            is_clear, caller.said = not caller.said.strip(b"?"), b""
            return is_clear
        return len(caller.said) < _LONGEST_LINE

    def _greet(self, caller: _Caller, said: dict[str, object]) -> None:
        """Raises KeyError, TypeError or ValueError for somebody who has no place here."""
        row = self._rows[str(said["run"])]
        if not said.get("watches"):
            if not row.greet(said["rank"], caller.channel):
                raise ValueError("no such rank is missing")
            caller.rank = int(str(said["rank"]))
        caller.row = row
        if all(row.is_there for row in self._rows.values()):
            self._stop_listening()

    def _go_on(self) -> None:
        """Begin the next turn, if none is under way and there is one."""
        going = [row for row in self._rows.values() if not row.is_over]
        while not any(row.has_turn for row in going):
            while self._queue:
                row = self._queue.pop(0)
                if row.waits:
                    row.begin_turn()
                    return
            if not going or not all(row.waits for row in going):
                return
            self._queue = [self._rows[run] for run in next(self._orders)]

    def _drop(self, caller: _Caller) -> None:
        self._callers.discard(caller)
        self._selector.unregister(caller.channel)
        caller.channel.close()

    def _stop_listening(self) -> None:
        """Everybody is there: nobody needs the address any more, and a driver that is killed leaves none."""
        if self._listens:
            self._listens = False
            self._selector.unregister(self._listener.socket)
            self._listener.close()


@contextmanager
def waiting_of(job: Job) -> Iterator[Callable[[float], float]]:
    """How many of its last so many seconds a job waited for its turn: none where nobody gives turns, or tells."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as channel:
        channel.settimeout(_ANSWER_SECONDS)

        def waited(seconds: float) -> float:
            try:
                channel.sendall(b"%r\n" % seconds)
                return float(channel.recv(_LONGEST_LINE))
            except (OSError, ValueError):
                channel.close()
                return 0.0

        with suppress(OSError, KeyError):
            channel.connect(_bound(job.env[VARIABLE]))
            channel.sendall(json.dumps({"run": job.name, "watches": True}).encode() + b"\n")
        yield waited


def _bound(address: str) -> str:
    return f"\0{address[1:]}" if address.startswith("@") else address
