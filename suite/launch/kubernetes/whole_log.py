"""All that a container printed, as it comes: an answer that breaks off on its way is gone on with, not begun again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta

from suite.launch.cluster.scheduler import Unanswered
from suite.launch.kubernetes.client import Cluster, Refused
from suite.launch.kubernetes.printed import STAMP

#: of one pod; what its ranks measured is a small part of that
MOST_BYTES = 2 << 30
#: answers that break off one after the other
MOST_BROKEN = 5
_NOT_THERE = (400, 404)
_GONE = b"suite: the pod went while its log was read\n"
_TOO_LONG = b"suite: the log goes on, and was not read any further\n"


def whole_log(cluster: Cluster, pod: str, container: str) -> bytes:
    """What a container printed; nothing where it never started.

    Raises Refused where its node cannot be asked, Unanswered where answers break off again and again.
    """
    log = _Log()
    broken = 0
    while True:
        before = log.size
        try:
            log.take(cluster.log_from(pod, container, log.begin_at()))
        except Refused as error:
            if error.status not in _NOT_THERE:
                raise
            return log.text(_GONE if log.lines else b"")
        except Unanswered:
            broken = broken + 1 if log.size == before else 0
            if broken == MOST_BROKEN or log.begin_at() is None:
                raise
            continue
        return log.text(_TOO_LONG if log.size > MOST_BYTES else b"")


class _Log:
    """Lines in their order, without the moments before them, and how many are of each second."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.size = 0
        self._of_second: Counter[str] = Counter()
        self._last, self._zone = "", ""

    def begin_at(self) -> str | None:
        """From which second on to ask again: two streams of a container may come a moment out of order."""
        second = self._second_before()
        return None if second is None else f"{second}{self._zone}"

    def _second_before(self) -> str | None:
        try:
            return (datetime.fromisoformat(self._last) - timedelta(seconds=1)).isoformat()
        except (ValueError, OverflowError):
            return None

    def take(self, chunks: Iterable[bytes]) -> None:
        """The lines of an answer behind those that are known. One that breaks off may raise in its midst."""
        begin = self._second_before()
        passed_over = sum(count for second, count in self._of_second.items() if begin is not None and second >= begin)
        rest = b""
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                passed_over = self._take_line(line + b"\n", passed_over)
            if self.size > MOST_BYTES:
                return
        if rest:
            self._take_line(rest, passed_over)

    def _take_line(self, line: bytes, passed_over: int) -> int:
        """How many of the next lines are known."""
        if passed_over:
            return passed_over - 1
        stamp = STAMP.match(line)
        if stamp is not None:
            self._last, self._zone = stamp[1].decode(), stamp[3].decode()
            line = line[stamp.end() :]
        self._of_second[self._last] += 1
        self.lines.append(line)
        self.size += len(line)
        return 0

    def text(self, note: bytes = b"") -> bytes:
        if note and self.lines and not self.lines[-1].endswith(b"\n"):
            note = b"\n" + note
        return b"".join([*self.lines, note])
