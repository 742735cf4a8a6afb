"""Engines and trainers that were asked for the same work: shown side by side, and never in one ranking."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from suite.report.facts.kind import WorkKind
from suite.report.facts.pool import Row
from suite.report.facts.work import done_otherwise, otherwise
from suite.spec.phases import ALL_NAMES
from suite.stats.compare import compare
from suite.stats.intervals import Interval, log_rates
from suite.stats.moderated import mean_of

_NOTHING_SENT = "it generates on the weights that train, so none are sent"
_NOT_ASKED = "the suite's iteration of this work has none"
_UNKNOWN = (
    "its trainer makes no such pass, or makes it within another phase (the list of what it does otherwise may tell)"
)


@dataclass(frozen=True)
class Side:
    """A row, and its rate over that of the fastest engine row; null for that row itself, and where there is none.

    ``otherwise``: in what its own counts and passes differ from those of the group's first row, in words. ``lacking``:
    phases that another row of the group has and this one does not, each with the reason.
    """

    row: Row
    ratio: Interval | None
    otherwise: tuple[str, ...]
    lacking: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SideBySide:
    """Rows with equal work asked for, on equally many ranks, in one setting, that are no ranking: engines first, then
    trainers, then asynchronous ones, each by their rates. ``phases``: those that any of them has, in order."""

    size: str
    ranks: int
    workload: str
    work: WorkKind
    sides: tuple[Side, ...]
    phases: tuple[str, ...]


def side_by_side(rows: Sequence[Row]) -> tuple[SideBySide, ...]:
    """The groups whose rows are of more than one kind: engines and trainers, synchronous and asynchronous, or trainers
    that did other work than each other."""
    alike: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        if row.measured:
            setting = replace(row.setting, kind="engine", asynchronous=False)
            alike[setting, row.work_hash, row.lengths_hash, row.ranks].append(row)
    found = []
    for members in alike.values():
        kinds = {(row.setting.kind, row.setting.asynchronous, done_otherwise(row)) for row in members}
        found += [_group(members)] if len(kinds) > 1 else []
    return tuple(found)


def _group(rows: Sequence[Row]) -> SideBySide:
    ordered = sorted(
        rows, key=lambda row: (row.setting.asynchronous, row.setting.kind, -mean_of(log_rates(row.measured)))
    )
    first = ordered[0]
    best = first if first.setting.kind == "engine" else None
    phases = tuple(name for name in ALL_NAMES if any(name in row.phase_names for row in rows))
    sides = [Side(row, _ratio(row, best), otherwise(row, first), _lacking(row, phases)) for row in ordered]
    return SideBySide(first.size, first.ranks, first.workload, first.work, tuple(sides), phases)


def _ratio(row: Row, best: Row | None) -> Interval | None:
    if best is None or row is best:
        return None
    return compare(row.measured, best.measured, prior=best.prior).ratio


def _lacking(row: Row, phases: Sequence[str]) -> tuple[tuple[str, str], ...]:
    reasons = dict(row.lacking_phases)
    if row.generation is None:
        reasons.setdefault("sync", _NOTHING_SENT)
    other_reason = _NOT_ASKED if row.setting.kind == "engine" else _UNKNOWN
    return tuple((name, reasons.get(name, other_reason)) for name in phases if name not in row.phase_names)
