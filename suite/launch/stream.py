"""What ranks print: rank 0's standard output, parted into events and log, and lines as a terminal may show them."""

import json
import re
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any

from suite.launch.traces import log_size
from suite.spec.foreign import read_part

EVENT_PREFIX = b"::suite:: "
#: a line behind the prefix that grows longer than this is no event
LONGEST_EVENT_BYTES = 1 << 20


class EventStream:
    """Takes output in chunks of any size; gives events to ``on_event`` and every other byte, in order, to ``write``.

    An event is a whole line: the prefix, then a JSON object with a ``kind``. A line that only looks like one goes
    to the log. Holds at most one possible event line back, never an ordinary one, so memory stays bounded.
    """

    def __init__(self, write: Callable[[bytes], None], on_event: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._on_event = on_event
        self._held = b""
        self._inside_line = False

    def feed(self, chunk: bytes) -> None:
        data, self._held = self._held + chunk, b""
        ordinary: list[bytes] = []
        for line in BytesIO(data):
            may_be_event = not self._inside_line and EVENT_PREFIX.startswith(line[: len(EVENT_PREFIX)])
            is_whole = line.endswith(b"\n")
            if may_be_event and not is_whole and len(line) <= LONGEST_EVENT_BYTES:
                self._held = line
                break
            event = parse_event(line) if may_be_event and is_whole else None
            if event is None:
                ordinary.append(line)
            else:
                self._put(ordinary)
                ordinary = []
                self._on_event(event)
            self._inside_line = not is_whole
        self._put(ordinary)

    def close(self) -> None:
        """The output has ended: what was held back is an event without line end, or log."""
        held, self._held = self._held, b""
        event = parse_event(held)
        if event is None:
            self._put([held])
        else:
            self._on_event(event)

    def _put(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        if data:
            self._write(data)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def parse_event(line: bytes) -> dict[str, Any] | None:
    """The event of a line of standard output; ``None`` where the line is none."""
    if not line.startswith(EVENT_PREFIX):
        return None
    try:
        event = _DECODER.decode(line[len(EVENT_PREFIX) :].decode())
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("kind"), str) else None


#: so much is read of a log at once, and so many characters of a line are shown
MOST_BYTES = 1 << 20
LONGEST_LINE = 2000
#: what a terminal would obey: control sequences, strings of the operating system's kind, and single escapes
_SEQUENCE = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]"
    r"|\x1b[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)?"
    r"|\x1b[ -/]{0,8}[0-~]?"
    r"|[\x90\x9b\x9d]"
)


def shown(line: bytes) -> str:
    """A line without what would colour, move or reverse a terminal's text; of a progress bar its last state."""
    text = line[: 4 * LONGEST_LINE].decode(errors="replace").rstrip("\r\n")
    states = [state for state in _SEQUENCE.sub("", text).split("\r") if state]
    last = (states[-1] if states else "").expandtabs()
    whole = len(last) <= LONGEST_LINE and len(line) <= 4 * LONGEST_LINE
    safe = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in last[:LONGEST_LINE])
    return safe if whole else f"{safe}..."


def read_on(path: Path, place: dict[str, int], lines: int) -> list[bytes]:
    """The last lines of a file at first, afterwards the whole lines that came since, without events: of its last
    mebibyte at most. All of a file that has become shorter. ``place``: by path, how far it was read. Raises Unreadable
    for what is no regular file."""
    known, size = place.get(str(path)), log_size(path)
    start = max(0 if known is None or known > size else known, size - MOST_BYTES)
    try:
        data = read_part(path, str(path), start, size - start)
    except FileNotFoundError:
        return []
    if known is None:
        place[str(path)] = size
        return without_events(data.splitlines(keepends=True)[1 if start else 0 :])[-lines:]
    whole = data.rfind(b"\n") + 1
    if whole == 0 and len(data) == MOST_BYTES:
        whole = len(data)  # one endless line
    place[str(path)] = start + whole
    return without_events(data[:whole].splitlines(keepends=True))


def without_events(lines: Iterable[bytes]) -> list[bytes]:
    """What a program printed for people."""
    return [line for line in lines if EVENT_PREFIX not in line]


def natural(name: str) -> tuple[str, int, str]:
    """By which rank-2 comes before rank-10."""
    head, _, number = name.rpartition("-")
    return (head, int(number), "") if number.isdecimal() else (name, 0, name)
