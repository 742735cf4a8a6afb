"""What the ranks left on disk that tells how they ended: their failure events and their logs, which are kept to a size.

Ranks may leave anything there, also something that is no file: a bounded part is read of files alone.
"""

import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_args

from suite.launch.classify import Report
from suite.launch.outcome import Failure, FailureKind
from suite.spec.foreign import LINE_BYTES, Unreadable, open_plain_to_change, read_part

TAIL_BYTES = 64 * 1024
LONGEST_LINE = 500
EVIDENCE_LINES = 40
#: A rank's start is its first event, and what made it fail among its last.
_FIRST_BYTES, _LAST_BYTES = LINE_BYTES, 4 * LINE_BYTES
#: Reports that are taken of one rank, and lines that are parsed to find them.
_MOST_REPORTS, _MOST_LINES = 100, 10_000
#: No run has so many iterations; a name of a phase is shorter.
_MOST_ITERATIONS, _LONGEST_NAME = 1 << 31, 80


class RankReports(NamedTuple):
    """A rank's start and its failures, from its events. ``unread``: why they were not read, where they were not."""

    started: bool
    reports: tuple[Report, ...]
    unread: str | None = None


def read_reports(events_file: Path) -> RankReports:
    """Read a rank's events; torn or foreign lines and a missing file are passed over."""
    name = f"events/{events_file.name}"
    try:
        first = read_part(events_file, name, 0, _FIRST_BYTES)
        last = read_part(events_file, name, -_LAST_BYTES, _LAST_BYTES) if len(first) == _FIRST_BYTES else b""
    except FileNotFoundError:
        return RankReports(False, ())
    except Unreadable as error:
        return RankReports(False, (), str(error))
    beginning = parse_reports(first.split(b"\n"))
    return beginning if not last else RankReports(beginning.started, parse_reports(last.split(b"\n")).reports)


def parse_reports(lines: Iterable[bytes]) -> RankReports:
    """The same from the lines of the file."""
    started = False
    reports: list[Report] = []
    told = (_event(line) for line in lines if b'"start"' in line or b'"failure"' in line)
    for event in islice(told, _MOST_LINES):
        started = started or event.get("kind") == "start"
        if event.get("kind") == "failure" and len(reports) < _MOST_REPORTS:
            reports.append(Report(finite(event.get("time")) or 0.0, _failure(event)))
    return RankReports(started, tuple(reports))


def _event(line: bytes) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}


def _failure(event: dict[str, Any]) -> Failure:
    """A failure event as data; what does not fit the contract is left out rather than trusted."""
    named = event.get("failure")
    kind: FailureKind = next((kind for kind in get_args(FailureKind) if kind == named), "unknown")
    evidence = event.get("evidence")
    lines = evidence if isinstance(evidence, list) else []
    return Failure(
        kind=kind,
        phase=phase_of(event),
        iteration=iteration_of(event),
        evidence=tuple(_text(line) for line in lines[:EVIDENCE_LINES]),
    )


def phase_of(event: dict[str, Any]) -> str | None:
    """The phase that an event of a rank names, if it does."""
    phase = event.get("phase")
    return _text(phase, _LONGEST_NAME) if isinstance(phase, str) else None


def iteration_of(event: dict[str, Any]) -> int | None:
    iteration = event.get("iteration")
    return iteration if type(iteration) is int and 0 <= iteration < _MOST_ITERATIONS else None


def _text(value: Any, longest: int = LONGEST_LINE) -> str:
    """Cut to a length one can print; half of a surrogate pair, which JSON can spell, becomes a question mark."""
    try:
        text = value if isinstance(value, str) else ascii(value)
    except RecursionError:
        text = "nested too deeply"
    return text[:longest].encode(errors="replace").decode()


def finite(value: Any) -> float | None:
    """A number of parsed JSON that a float holds; null for anything else."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e300 else None


def log_size(log_file: Path) -> int:
    """Bytes in the log; 0 when there is none."""
    try:
        status = log_file.lstat()
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def log_tail(log_file: Path, since: int = 0) -> tuple[str, ...]:
    """Non-empty lines of the last 64 KiB of a log, from byte ``since`` on, each cut to a length one can print."""
    try:
        first = max(since, log_size(log_file) - TAIL_BYTES)
        return printable_lines(read_part(log_file, f"logs/{log_file.name}", first, TAIL_BYTES))
    except FileNotFoundError:
        return ()
    except Unreadable as error:
        return (f"{error}: it was not read",)


def printable_lines(data: bytes) -> tuple[str, ...]:
    """Non-empty lines of a log, each cut to a length one can print."""
    text = data.decode(errors="replace")
    return tuple(line.rstrip()[:LONGEST_LINE] for line in text.splitlines() if line.strip())


#: A log that is larger is cut to its first and last bytes.
MOST_BYTES, FIRST_BYTES, LAST_BYTES = 64 << 20, 16 << 20, 16 << 20
_PIECE_BYTES = 1 << 20
#: How often logs are looked at that ranks write themselves.
LOOK_SECONDS = 5.0


def hold(logs: Iterable[Path], cut: dict[Path, int]) -> None:
    """Cut logs that are larger than ``MOST_BYTES`` to their beginning and their end; what cannot be cut stays as it is.
    ``cut``: bytes that were cut of each. What a rank, which appends itself, writes in that moment may be lost."""
    for log in logs:
        size = log_size(log)
        if size > MOST_BYTES:
            with suppress(OSError, Unreadable):
                cut[log] = _without_middle(log, size, cut.get(log, 0))


def _without_middle(log: Path, size: int, cut_before: int) -> int:
    """Bytes that are cut now and were before. The end is moved to the beginning, a piece at a time."""
    descriptor = open_plain_to_change(log, f"logs/{log.name}")
    try:
        start = size - LAST_BYTES
        start += os.pread(descriptor, _PIECE_BYTES, start).find(b"\n") + 1
        cut = cut_before + start - FIRST_BYTES - (len(mark(cut_before)) + 1 if cut_before else 0)
        end = FIRST_BYTES + os.pwrite(descriptor, b"\n" + mark(cut), FIRST_BYTES)
        while piece := os.pread(descriptor, _PIECE_BYTES, start):
            written = os.pwrite(descriptor, piece, end)
            start, end = start + written, end + written
        os.ftruncate(descriptor, end)
    finally:
        os.close(descriptor)
    return cut


def mark(cut: int) -> bytes:
    """The line that stands in the place of what was cut."""
    return b"[suite: %d bytes were cut here; of a log the first and the last 16 MiB are kept]\n" % cut
