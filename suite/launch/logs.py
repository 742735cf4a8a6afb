"""Logs of ranks that are kept to a size: their beginning, their end, and how much was cut from between.

Ranks append to their logs themselves, so nothing is looked at while they are small, and one that is cut goes on being
appended to. What a rank writes in the moment of a cut may be lost with it.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from suite.launch.traces import log_size
from suite.spec.foreign import Unreadable, open_plain_to_change

#: A log that is larger is cut to its first and last bytes.
MOST_BYTES, FIRST_BYTES, LAST_BYTES = 64 << 20, 16 << 20, 16 << 20
_PIECE_BYTES = 1 << 20
#: How often logs are looked at that ranks write themselves.
LOOK_SECONDS = 5.0


class LogLimit:
    """Cuts logs that have become too large, and knows how much was cut of each."""

    def __init__(self) -> None:
        self._cut: dict[Path, int] = {}

    def hold(self, logs: Iterable[Path]) -> None:
        """Cut those that are larger than ``MOST_BYTES``; what cannot be cut stays as it is."""
        for log in logs:
            size = log_size(log)
            if size > MOST_BYTES:
                with suppress(OSError, Unreadable):
                    self._cut[log] = _without_middle(log, size, self._cut.get(log, 0))


def _without_middle(log: Path, size: int, cut_before: int) -> int:
    """Bytes that are cut now and were before. The end is moved to the beginning, a piece at a time."""
    descriptor = open_plain_to_change(log, f"logs/{log.name}")
    try:
        start = size - LAST_BYTES
        start += os.pread(descriptor, _PIECE_BYTES, start).find(b"\n") + 1
        cut = cut_before + start - FIRST_BYTES - (len(_between(cut_before)) if cut_before else 0)
        end = FIRST_BYTES + os.pwrite(descriptor, _between(cut), FIRST_BYTES)
        while piece := os.pread(descriptor, _PIECE_BYTES, start):
            written = os.pwrite(descriptor, piece, end)
            start, end = start + written, end + written
        os.ftruncate(descriptor, end)
    finally:
        os.close(descriptor)
    return cut


def _between(cut: int) -> bytes:
    return b"\n" + mark(cut)


def mark(cut: int) -> bytes:
    """The line that stands in the place of what was cut."""
    return b"[suite: %d bytes were cut here; of a log the first and the last 16 MiB are kept]\n" % cut
