"""What the ranks left on disk that tells how they ended: their failure events and the tails of their logs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple, get_args

from suite.launch.classify import Report
from suite.launch.outcome import Failure, FailureKind

TAIL_BYTES = 64 * 1024
LONGEST_LINE = 500
EVIDENCE_LINES = 40


class RankReports(NamedTuple):
    """A rank's start and its failures, from its events."""

    started: bool
    reports: tuple[Report, ...]


def read_reports(events_file: Path) -> RankReports:
    """Read a rank's events; torn or foreign lines and a missing file are passed over."""
    try:
        with events_file.open("rb") as lines:
            return parse_reports(lines)
    except FileNotFoundError:
        return RankReports(False, ())


def parse_reports(lines: Iterable[bytes]) -> RankReports:
    """The same from the lines of the file."""
    started = False
    reports: list[Report] = []
    for line in lines:
        if b'"start"' not in line and b'"failure"' not in line:
            continue
        event = _event(line)
        started = started or event.get("kind") == "start"
        if event.get("kind") == "failure":
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
    named, phase, iteration = event.get("failure"), event.get("phase"), event.get("iteration")
    kind: FailureKind = next((kind for kind in get_args(FailureKind) if kind == named), "unknown")
    evidence = event.get("evidence")
    lines = evidence if isinstance(evidence, list) else []
    return Failure(
        kind=kind,
        phase=_text(phase) if isinstance(phase, str) else None,
        iteration=iteration if isinstance(iteration, int) else None,
        evidence=tuple(_text(line) for line in lines[:EVIDENCE_LINES]),
    )


def _text(value: Any) -> str:
    """Cut to a length one can print; half of a surrogate pair, which JSON can spell, becomes a question mark."""
    return str(value)[:LONGEST_LINE].encode(errors="replace").decode()


def finite(value: Any) -> float | None:
    """A number of parsed JSON that a float holds; null for anything else."""
    return float(value) if isinstance(value, (int, float)) and abs(value) < 1e300 else None


def log_size(log_file: Path) -> int:
    """Bytes in the log; 0 when there is none."""
    try:
        return log_file.stat().st_size
    except FileNotFoundError:
        return 0


def log_tail(log_file: Path, since: int = 0) -> tuple[str, ...]:
    """Non-empty lines of the last 64 KiB of a log, from byte ``since`` on, each cut to a length one can print."""
    try:
        with log_file.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(since, size - TAIL_BYTES, 0))
            return printable_lines(log.read(TAIL_BYTES))
    except FileNotFoundError:
        return ()


def printable_lines(data: bytes) -> tuple[str, ...]:
    """Non-empty lines of a log, each cut to a length one can print."""
    text = data.decode(errors="replace")
    return tuple(line.rstrip()[:LONGEST_LINE] for line in text.splitlines() if line.strip())


def stack_lines(dump: tuple[str, ...], limit: int) -> tuple[str, ...]:
    """What matters of a faulthandler dump: the thread that was running when it was asked, else all."""
    current = next((index for index, line in enumerate(dump) if line.startswith("Current thread")), 0)
    return dump[current : current + limit]


def oom_kill_count() -> int | None:
    """How many processes the kernel has killed for want of memory since it started; ``None`` where it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return None
    counts = [int(line.split()[1]) for line in lines if line.startswith("oom_kill ")]
    return counts[0] if counts else None
