"""What the planner expected of a row's runs, as their records have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suite.bundle.facts import positive
from suite.bundle.record import Record
from suite.stats.intervals import Interval


@dataclass(frozen=True)
class Expected:
    """Samples per second, with the band in which four of five measured rates lay where there is one, and seconds of the
    phases."""

    rate: Interval
    phases: tuple[tuple[str, float], ...]


def expected_of(records: Sequence[Record]) -> Expected | None:
    """The stored prediction, the same for all repeats."""
    return next((found for found in (_expected(record.predicted or {}) for record in records) if found), None)


def _expected(body: Mapping[str, Any]) -> Expected | None:
    value, low, high = (positive(body.get(name)) for name in ("samples_per_second", "low", "high"))
    if value is None:
        return None
    bounded = low is not None and high is not None and low <= value <= high
    phases = body.get("phases")
    known = {name: positive(seconds) for name, seconds in phases.items()} if isinstance(phases, Mapping) else {}
    return Expected(
        Interval(value, low, high) if bounded else Interval(value, None, None),
        tuple((name, seconds) for name, seconds in known.items() if seconds is not None),
    )
