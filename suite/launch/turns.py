"""Who works when: rows that were started together, one of which has its turn while the others wait.

Each rank connects to a Unix stream socket of the driver and names itself, ``{"run": ID, "rank": N}`` in a line. It
sends ``?`` for a turn and gets a byte when that of its row has come: how many iterations it is, none for setting up.
Asking again ends the turn, and so does the end of the run. A round of turns begins when every row that goes on waits
with all of its ranks, and its turns are of one length.

Whoever watches a run, ``{"run": ID, "watches": true}``, is told ``-`` when it waits with all of its ranks, and ``+``
when it goes on.
"""

import json
import math
import os
import selectors
import shutil
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from secrets import token_hex
from typing import NamedTuple

from suite.launch.job import Job, Mount
from suite.launch.watching import GOES_ON, TURNS, WAITS, connected

#: Seconds of an iteration below which what another row left in caches, some 4 % of a first one of 0.04 s, may be seen
#: in ratios (docs/results/checks.md, Turns), and of a turn of several, the first of which does not count.
SHORT_ITERATION, SHORT_TURN = 0.05, 0.2
#: Iterations of a turn that a byte tells.
MOST_LENGTH = 255
#: The round, counted from setting up, by which the first iteration, which is slower, has been followed by another.
_SETTLED = 3
_LONGEST_LINE = 4096
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
        return job.model_copy(update={"env": {**job.env, TURNS: self.address}, "mounts": (*job.mounts, *mounts)})


class Listener:
    """The driver's socket: an abstract one, which leaves nothing, or in a folder ``shared`` with containers."""

    def __init__(self, shared: bool) -> None:
        self.folder = tempfile.mkdtemp(prefix="suite-") if shared else None
        self.address = f"@suite-{token_hex(8)}" if self.folder is None else f"{self.folder}/turns"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(connected(self.address))
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
    """A row: those of its ranks that are there and that have asked, and who watches it."""

    def __init__(self, ranks: int, clock: Callable[[], float]) -> None:
        self._ranks, self._clock = ranks, clock
        self._began, self._length = 0.0, 0
        self.pace: float | None = None  # seconds of an iteration, from its last turn
        self._there: dict[int, socket.socket] = {}
        self._asked: set[int] = set()
        self._watchers: list[socket.socket] = []
        self.waits = self.has_turn = self.is_over = self._has_lost = False

    @property
    def is_there(self) -> bool:
        return self._has_lost or self.is_over or len(self._there) == self._ranks

    def greet(self, rank: object, channel: socket.socket) -> int:
        """A rank that was missing. Raises ValueError for any other."""
        if type(rank) is not int or self.is_there or rank in self._there or not 0 <= rank < self._ranks:
            raise ValueError("no such rank is missing")
        self._there[rank] = channel
        return rank

    def watch(self, channel: socket.socket) -> None:
        self._watchers.append(channel)
        if self.waits:
            _send(channel, WAITS)

    def ask(self, rank: int) -> None:
        self._asked.add(rank)
        if len(self._asked) == self._ranks and not self._has_lost:
            if self._length:
                self.pace = (self._clock() - self._began) / self._length
            self.has_turn = False
            self._tell(waits=True)

    def lose(self, rank: int) -> None:
        """A rank has ended: what the others still do goes on until their launcher ends them too."""
        self._asked.discard(rank)
        self._has_lost = True
        self._tell(waits=False)

    def begin_turn(self, length: int) -> None:
        self._asked.clear()
        self.has_turn = True
        self._tell(waits=False)
        self._began, self._length = self._clock(), length
        for channel in self._there.values():
            _send(channel, bytes((length,)))

    def _tell(self, waits: bool) -> None:
        if waits != self.waits:
            self.waits = waits
            for channel in self._watchers:
                _send(channel, WAITS if waits else GOES_ON)


@dataclass(eq=False)
class _Caller:
    """A connection: whose it is, once that was said, and what was said since and not understood yet."""

    channel: socket.socket
    row: _Row | None = None
    rank: int | None = None
    said: bytes = b""


class Arbiter:
    """Gives the rows of one start their turns. It registers with a selector whose owner calls what is due there."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        listener: Listener,
        ranks: Mapping[str, int],
        seed: str,
        lengths: tuple[int, int] = (1, 1),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``ranks``: how many, by the id of the run. ``seed`` draws the order. ``lengths``: fewest and most iterations
        of a turn; within them, how long iterations take decides, once."""
        self._selector, self._listener = selector, listener
        self._rows = {run: _Row(number, clock) for run, number in ranks.items()}
        self._lengths, self._length, self._round = lengths, 0, 0
        self._orders = balanced_orders(sorted(ranks), seed)
        self._queue: list[_Row] = []
        self._callers: set[_Caller] = set()
        self._listens = True
        selector.register(listener.socket, selectors.EVENT_READ, self._accept)

    def end(self, run: str) -> None:
        """A run is over: the others go on without it."""
        self._rows[run].is_over, self._rows[run].has_turn = True, False
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
        data = b""
        with suppress(OSError):
            data = caller.channel.recv(_LONGEST_LINE)
        caller.said += data
        if not data or not self._is_understood(caller):
            self._drop(caller)
        self._go_on()

    def _is_understood(self, caller: _Caller) -> bool:
        """Do what is asked for; whether it made sense."""
        if caller.row is None:
            line, newline, rest = caller.said.partition(b"\n")
            if not newline:
                return len(line) < _LONGEST_LINE
            try:
                said = json.loads(line)
                row = self._rows[str(said["run"])]
                if said.get("watches"):
                    row.watch(caller.channel)
                else:
                    caller.rank = row.greet(said["rank"], caller.channel)
            except (ValueError, TypeError, KeyError, RecursionError):  # somebody who has no place here
                return False
            caller.row, caller.said = row, rest
            if all(row.is_there for row in self._rows.values()):
                self._stop_listening()
        asked, caller.said = caller.said, b""
        if asked and caller.rank is not None:
            caller.row.ask(caller.rank)
        return not asked.strip(b"?")

    def _go_on(self) -> None:
        """Begin the next turn, if none is under way and there is one."""
        going = [row for row in self._rows.values() if not row.is_over]
        while not any(row.has_turn for row in going):
            while self._queue:
                row = self._queue.pop(0)
                if row.waits:
                    return row.begin_turn(self._length)
            if not going or not all(row.waits for row in going):
                return None
            self._queue = [self._rows[run] for run in next(self._orders)]
            self._length = self._next_length(going)
            self._round += 1
        return None

    def _next_length(self, going: Sequence[_Row]) -> int:
        """Of each turn of the round that begins."""
        fewest, most = self._lengths
        if self._round == 0:
            return 0
        if self._round != _SETTLED:
            return self._length or fewest
        pace = min((row.pace for row in going if row.pace), default=SHORT_ITERATION)
        enough = 1 if pace >= SHORT_ITERATION else math.ceil(SHORT_TURN / pace)
        return max(fewest, min(most, enough))

    def _drop(self, caller: _Caller) -> None:
        self._callers.discard(caller)
        self._selector.unregister(caller.channel)
        caller.channel.close()
        if caller.row is not None and caller.rank is not None:
            caller.row.lose(caller.rank)

    def _stop_listening(self) -> None:
        """Everybody is there: nobody needs the address any more, and a driver that is killed leaves none."""
        if self._listens:
            self._listens = False
            self._selector.unregister(self._listener.socket)
            self._listener.close()


def _send(channel: socket.socket, word: bytes) -> None:
    """Nothing to somebody who is gone, as the end of the connection tells."""
    with suppress(OSError):
        channel.send(word)


def balanced_orders(rows: Sequence[str], seed: str) -> Iterator[tuple[str, ...]]:
    """Orders of ``rows`` without end, drawn block by block.

    Over a block every row has every place equally often and, within rounds, follows every other one equally often: a
    Latin square of Williams' design (E. J. Williams, Aust. J. Sci. Res. A 2, 149, 1949), with its mirror image where
    the number of rows is odd. A block has as many rounds as there are rows, or twice as many.
    """
    random, count = Random(seed), len(rows)
    zigzag = [(place + 1) // 2 if place % 2 else -(place // 2) % count for place in range(count)]
    while True:
        names = random.sample(rows, count)
        block = [[names[(step + shift) % count] for step in zigzag] for shift in range(count)]
        if count % 2:
            block += [order[::-1] for order in block]
        random.shuffle(block)
        yield from map(tuple, block)
