"""What ranks printed into one output, kept to a size: every event, and of other lines the first and the last."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from suite.launch.logs import FIRST_BYTES, LAST_BYTES, mark
from suite.launch.stream import EVENT_PREFIX


class Printed:
    """Lines of an output in their order; where some were cut, events that came after the first lines come next."""

    def __init__(self) -> None:
        self._first: list[bytes] = []
        self._events: list[bytes] = []
        self._last: deque[bytes] | None = None
        self._first_bytes = self._last_bytes = self._cut = 0

    def append(self, line: bytes) -> None:
        """Take the next line."""
        is_event = EVENT_PREFIX in line
        if self._last is None and self._first_bytes < FIRST_BYTES:
            self._first.append(line)
            self._first_bytes += 0 if is_event else len(line)
        elif is_event:
            self._events.append(line)
        else:
            self._last = self._last or deque()
            self._last.append(line)
            self._last_bytes += len(line)
            while self._last_bytes > LAST_BYTES:
                dropped = len(self._last.popleft())
                self._last_bytes -= dropped
                self._cut += dropped

    def __iter__(self) -> Iterator[bytes]:
        yield from self._first
        yield from self._events
        if self._cut:
            yield mark(self._cut)
        yield from self._last or ()
