"""Lines of logs that somebody else writes: the last of a file, what came since, and each as a terminal may show it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from suite.launch.stream import EVENT_PREFIX
from suite.spec import foreign

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
_TAB = 8


def shown(line: bytes) -> str:
    """A line without what would colour, move or reverse a terminal's text; of a line that was drawn over again and
    again, as progress bars are, its last state."""
    text = line[: 4 * LONGEST_LINE].decode(errors="replace").rstrip("\r\n")
    states = [state for state in _SEQUENCE.sub("", text).split("\r") if state]
    last = (states[-1] if states else "").expandtabs(_TAB)
    whole = len(last) <= LONGEST_LINE and len(line) <= 4 * LONGEST_LINE
    safe = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in last[:LONGEST_LINE])
    return safe if whole else f"{safe}..."


def last_lines(path: Path, lines: int) -> tuple[list[bytes], int]:
    """The last lines of a file that are no events, of its last mebibyte at most, and the place behind them.

    Raises Unreadable for what is no regular file, FileNotFoundError where there is none.
    """
    with foreign.open_plain(path, str(path), None) as file:
        size = os.fstat(file.fileno()).st_size
        start = max(0, size - MOST_BYTES)
        file.seek(start)
        data = file.read(size - start)
    found = without_events(data.splitlines(keepends=True)[1 if start else 0 :])
    return found[-lines:], size


def lines_since(path: Path, place: int) -> tuple[list[bytes], int]:
    """The whole lines behind a place that are no events, of the last mebibyte at most, and the place behind them; all
    of a file that has become shorter. Raises as ``last_lines``."""
    with foreign.open_plain(path, str(path), None) as file:
        size = os.fstat(file.fileno()).st_size
        start = max(place if place <= size else 0, size - MOST_BYTES)
        file.seek(start)
        data = file.read(size - start)
    whole = data.rfind(b"\n") + 1
    if whole == 0 and len(data) == MOST_BYTES:
        whole = len(data)  # one endless line
    return without_events(data[:whole].splitlines(keepends=True)), start + whole


def read_on(path: Path, place: dict[str, int], lines: int) -> list[bytes]:
    """The last lines of a file at first, afterwards what came since; nothing of one that is not there.

    ``place``: by path, how far it was read. Raises Unreadable for what is no regular file.
    """
    key = str(path)
    try:
        found, place[key] = lines_since(path, place[key]) if key in place else last_lines(path, lines)
    except FileNotFoundError:
        return []
    return found


def without_events(lines: Iterable[bytes]) -> list[bytes]:
    """What a program printed for people."""
    return [line for line in lines if EVENT_PREFIX not in line]
