"""Whose clock the seconds of a row are of, and which backends nobody had run when their code was written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from suite.report.facts.entry import SUITE_CLOCK, Entry

if TYPE_CHECKING:
    from suite.report.facts.pool import Row


def clock_of(entries: Sequence[Entry]) -> str:
    """The suite's, or the backend's log where any of its runs tells that its seconds are from there."""
    for entry in entries:
        if (entry.record.environment.worker or {}).get("clock"):
            return f"{entry.manifest.backend.name}'s log"
    return SUITE_CLOCK


def clock_lines(rows: Sequence[Row]) -> tuple[str, ...]:
    """One caveat for all rows that the suite did not time itself."""
    names = [f"{row.name} ({row.backend})" for row in rows if row.setting.clock != SUITE_CLOCK]
    if not names:
        return ()
    return (
        f"{', '.join(names)}: seconds and counts are those of the trainer's own log. The suite did not measure them, "
        "so these rows are ranked with no other backend's",
    )


def experimental_lines(entries: Sequence[Entry]) -> tuple[str, ...]:
    """A caveat for each backend that its run calls experimental, with what it says of that."""
    found: dict[str, str] = {}
    for entry in entries:
        known = (entry.record.environment.worker or {}).get("experimental")
        if isinstance(known, str):
            found.setdefault(entry.manifest.backend.name, known)
    return tuple(
        f"{backend} is experimental ({known}): its makers tested it on recorded logs and configuration classes alone"
        for backend, known in sorted(found.items())
    )
