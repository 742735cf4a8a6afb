"""Two results folders against each other: the same rows, before and after, here and there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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
    """Every row that both sides measured, and those that only one did.

    ``other_work``: rows that both sides have in name, backend and layout, but of which they did different work, with
    what differs.
    """

    rows: tuple[ComparedRow, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    other_work: tuple[str, ...] = ()


def compare_entries(
    before: Sequence[Entry], after: Sequence[Entry], margin: float = DEFAULT_MARGIN
) -> FolderComparison:
    """Pair the rows of equal backend, layout and work on equally many ranks; versions and machines may differ.

    Raises UsageError when nothing pairs.
    """
    first, second = _by_key(before), _by_key(after)
    shared = [key for key in first if key in second]
    other_work = tuple(_other_work(first, second))
    if not shared:
        why = f": {other_work[0]}" if other_work else ""
        raise UsageError(f"the two sides share no row of equal backend, layout and work{why}")
    return FolderComparison(
        rows=tuple(_compared_row(first[key], second[key], margin) for key in shared),
        only_before=tuple(_name(row) for key, row in first.items() if key not in second),
        only_after=tuple(_name(row) for key, row in second.items() if key not in first),
        other_work=other_work,
    )


def _by_key(entries: Sequence[Entry]) -> dict[tuple[str, ...], Row]:
    """Measured rows by what must be equal. A side with two rows of one key is ambiguous."""
    found: dict[tuple[str, ...], Row] = {}
    for row in build(entries).rows:
        if not row.measured:
            continue
        setting = row.setting
        work = (row.work_hash, row.lengths_hash)
        key = (*work, row.backend, row.layout, setting.track, setting.device, setting.precision)
        if key in found:
            raise UsageError(f"{_name(row)} was measured in two ways on one side; name the bundles to compare")
        found[key] = row
    return found


def _other_work(first: dict[tuple[str, ...], Row], second: dict[tuple[str, ...], Row]) -> Iterator[str]:
    """Rows without a partner that look like one of the other side: one line each, with what differs."""
    unpaired = [row for key, row in second.items() if key not in first]
    for key, before in first.items():
        after = next((row for row in unpaired if (row.size, *_place(row)) == (before.size, *_place(before))), None)
        if key not in second and after is not None:
            unpaired.remove(after)
            yield f"{_name(before)}: {_what_differs(before, after)}"


def _place(row: Row) -> tuple:
    setting = row.setting
    return (row.ranks, row.backend, row.layout, setting.track, setting.device, setting.precision)


def _what_differs(before: Row, after: Row) -> str:
    """The first that is known of kind of work, workload, and samples."""
    pairs = (
        (before.work.text, after.work.text),
        (f"workload {before.workload}", f"workload {after.workload}"),
        (f"{before.samples_per_iteration} samples", f"{after.samples_per_iteration} samples"),
    )
    for one, other in pairs:
        if one != other:
            return f"{one} / {other}"
    return "settings of the workload or lengths of the samples"


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
