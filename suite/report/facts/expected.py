"""What the planner expected of a row's runs: as their records have it, or computed while the report is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suite.bundle.record import Record
from suite.planner.own_machine import predict_run
from suite.spec.manifest import Manifest
from suite.stats.intervals import Interval

#: Of how many runs of a row the ceilings are looked at.
_LOOKED_AT = 8


@dataclass(frozen=True)
class Expected:
    """Samples per second, with the band in which four of five measured rates lay where there is one, and seconds of the
    phases. ``computed``: by this report, from ceilings that the runs measured; no record holds it."""

    rate: Interval
    phases: tuple[tuple[str, float], ...]
    computed: bool


def expected_of(manifest: Manifest, records: Sequence[Record]) -> Expected | None:
    """The stored prediction, the same for all repeats; of runs on a CPU the median of what their ceilings promise."""
    for record in records:
        found = _expected(record.predicted or {}, computed=False)
        if found is not None:
            return found
    made = [predict_run(manifest, record) for record in _some(records)]
    every = [each for each in (_expected(body or {}, computed=True) for body in made) if each is not None]
    every.sort(key=lambda each: each.rate.value)
    return every[len(every) // 2] if every else None


def _some(records: Sequence[Record]) -> Sequence[Record]:
    """At most ``_LOOKED_AT`` of the records, evenly taken: what machines of one row reach differs little."""
    return records[:: -(-len(records) // _LOOKED_AT)] if records else records


def _expected(body: Mapping[str, Any], computed: bool) -> Expected | None:
    value, low, high = (_positive(body.get(name)) for name in ("samples_per_second", "low", "high"))
    if value is None:
        return None
    bounded = low is not None and high is not None and low <= value <= high
    phases = body.get("phases")
    told = {name: _positive(seconds) for name, seconds in phases.items()} if isinstance(phases, Mapping) else {}
    return Expected(
        Interval(value, low, high) if bounded else Interval(value, None, None),
        tuple((name, seconds) for name, seconds in told.items() if seconds is not None),
        computed,
    )


def _positive(value: Any) -> float | None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and 0 < value < 1e30 else None
