"""Two results folders against each other: the same rows, before and after, here and there."""

from __future__ import annotations

from collections.abc import Sequence

from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.facts.pool import Row
from suite.spec.base import Frozen, UsageError
from suite.stats.compare import DEFAULT_MARGIN, ComparisonVerdict, compare


class ComparedRow(Frozen):
    """One row that both sides have: the rate of the second over that of the first."""

    size: str
    ranks: int
    backend: str
    layout: str
    runs_before: int
    runs_after: int
    ratio: float
    low: float | None
    high: float | None
    verdict: ComparisonVerdict
    equivalent: bool | None

    def below(self, gate: float) -> bool:
        """Whether the ratio is under ``gate`` for sure: its whole interval is, or the ratio where there is none."""
        return (self.ratio if self.high is None else self.high) < gate

    def undecided(self, gate: float) -> bool:
        """Whether these runs are too few or too noisy to show that the ratio keeps to ``gate``."""
        return not self.below(gate) and (self.low is None or self.low < gate)


class FolderComparison(Frozen):
    """Every row that both sides measured, and those that only one did."""

    rows: tuple[ComparedRow, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]


def compare_entries(
    before: Sequence[Entry], after: Sequence[Entry], margin: float = DEFAULT_MARGIN
) -> FolderComparison:
    """Pair the rows of equal backend, layout and work on equally many ranks; versions and machines may differ.

    Raises UsageError when nothing pairs.
    """
    first, second = _by_key(before), _by_key(after)
    shared = [key for key in first if key in second]
    if not shared:
        raise UsageError("the two sides share no row of equal backend, layout and work")
    return FolderComparison(
        rows=tuple(_compared_row(first[key], second[key], margin) for key in shared),
        only_before=tuple(_name(row) for key, row in first.items() if key not in second),
        only_after=tuple(_name(row) for key, row in second.items() if key not in first),
    )


def _by_key(entries: Sequence[Entry]) -> dict[tuple[str, ...], Row]:
    """Measured rows by what must be equal. A side with two rows of one key is ambiguous."""
    found: dict[tuple[str, ...], Row] = {}
    for row in build(entries).rows:
        if not row.measured:
            continue
        setting = row.setting
        key = (row.work_hash, row.backend, row.layout, setting.track, setting.device, setting.precision)
        if key in found:
            raise UsageError(f"{_name(row)} was measured in two ways on one side; name the bundles to compare")
        found[key] = row
    return found


def _compared_row(before: Row, after: Row, margin: float) -> ComparedRow:
    result = compare(after.measured, before.measured, margin)
    return ComparedRow(
        size=after.size,
        ranks=after.ranks,
        backend=after.backend,
        layout=after.layout,
        runs_before=len(before.measured),
        runs_after=len(after.measured),
        ratio=result.ratio.value,
        low=result.ratio.low,
        high=result.ratio.high,
        verdict=result.verdict,
        equivalent=result.equivalent,
    )


def _name(row: Row) -> str:
    return f"{row.backend} {row.size} {row.layout}"
