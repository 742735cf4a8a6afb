"""Engines and trainers that were asked for the same work: shown side by side, and never in one ranking."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from suite.report.facts.pool import Row
from suite.stats.compare import compare
from suite.stats.intervals import Interval


@dataclass(frozen=True)
class Side:
    """A row, and its rate over that of the fastest engine row; null for that row itself."""

    row: Row
    ratio: Interval | None


@dataclass(frozen=True)
class SideBySide:
    """Rows of both kinds with equal work asked for, on equally many ranks, in one setting: engines first."""

    size: str
    ranks: int
    sides: tuple[Side, ...]


def side_by_side(rows: Sequence[Row]) -> tuple[SideBySide, ...]:
    """The groups that hold engine rows and trainer rows."""
    alike: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        if row.measured:
            alike[replace(row.setting, kind="engine"), row.work_hash, row.lengths_hash, row.ranks].append(row)
    mixed = [members for members in alike.values() if len({row.setting.kind for row in members}) > 1]
    return tuple(_group(members) for members in mixed)


def _group(rows: Sequence[Row]) -> SideBySide:
    ordered = sorted(rows, key=lambda row: (row.setting.kind, -_rate(row), row.number))
    best = ordered[0]
    others = [Side(row, compare(row.measured, best.measured, prior=best.prior).ratio) for row in ordered[1:]]
    return SideBySide(size=best.size, ranks=best.ranks, sides=(Side(best, None), *others))


def _rate(row: Row) -> float:
    assert row.samples_per_second is not None, "a row with runs has a rate"
    return row.samples_per_second.value
