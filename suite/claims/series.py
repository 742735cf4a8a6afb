"""Scaling figures of one series: one reference for all, which may be in the table or not."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from suite.claims.agreement import some
from suite.claims.conventions import Row
from suite.claims.judge import Judged, closest
from suite.claims.ratio import RATIO
from suite.claims.scaling import count, shares, strays

#: Rows that agree on a reference outside the table, at least, and their share, before another of the series is wrong.
_LEAST, _SHARE = 3, 2 / 3


def with_references(meaning: str, cells: Sequence[Judged], tolerance: float) -> list[Judged]:
    """The scaling figures of a column, each against the reference of its series (a source, model and device).

    Where that is not in the table nothing follows for a single row; rows that do not agree on one are flagged.
    """
    found = list(cells)
    series: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at, cell in enumerate(cells):
        series[series_key(cell.row)].append(at)
    for positions in series.values():
        numbers = [at for at in positions if cells[at].options and not cells[at].impossible]
        if _has_reference([cells[at] for at in numbers], tolerance):
            explained = [at for at in positions if cells[at].good]
            bases = [(count(cells[at].row) or 0.0, {entry.base for entry in cells[at].good}) for at in explained]
            reference, others = strays(bases)
            for at in (explained[index] for index in others):
                found[at] = _stray(cells[at], reference)
            continue
        wrong = _off_the_rest(meaning, [cells[at] for at in numbers], tolerance)
        for index, at in enumerate(numbers):
            cell = cells[at]
            if index in wrong:
                reason = f"{wrong[index]:+.1f} % off the one reference, outside the table, that the rest has"
                found[at] = cell.flagged(reason)
            elif not cell.good and not cell.certain:
                found[at] = cell.underivable()
    return found


def series_key(row: Row) -> tuple[object, ...]:
    """A scaling efficiency compares rows of one source, model and device."""
    return (row.words.get("source"), row.words.get("model"), row.words.get("device"), row.values.get("params"))


def _has_reference(cells: Sequence[Judged], tolerance: float) -> bool:
    """Whether a row is its own reference, or half of the rest follow from one that is there or from two columns."""
    if any(abs(cell.amount.value - 1) <= tolerance or RATIO in cell.row.values for cell in cells):
        return True
    smallest = [cell for cell in cells if all(entry.base == count(cell.row) for entry in cell.options)]
    following = sum(any(abs(entry.value - 1) > tolerance for entry in cell.fits) for cell in cells)
    # Where the smallest is stated and not 1, it may be chance that one other row follows from it.
    return following >= (2 if smallest else 1) and 2 * following >= len(cells) - len(smallest)


def _off_the_rest(meaning: str, cells: Sequence[Judged], tolerance: float) -> Mapping[int, float]:
    """Positions of rows that do not have the one reference outside the table that most may have; percent off it."""
    best: tuple[set[int], float, list[float | None]] = (set(), 0.0, [])
    first = cells[0].row if cells else None
    kinds = dict.fromkeys(kind for cell in cells for kind, _ in shares(cell.row, first, 1.0)) if first else {}
    open_by = [2 * tolerance + cell.amount.rounding / cell.amount.value for cell in cells]
    for kind in kinds:
        references = [_reference(meaning, cell, cells[0].row, kind) for cell in cells]
        for centre in some([each for each in references if each]):
            near = {at for at, each in enumerate(references) if each and abs(each / centre - 1) <= open_by[at]}
            if len(near) > len(best[0]):
                best = (near, centre, references)
    near, centre, references = best
    if len(near) < _LEAST or len(near) < _SHARE * len(cells):
        return {}
    return {at: 100 * (each / centre - 1) for at, each in enumerate(references) if each and at not in near}


def _reference(meaning: str, cell: Judged, first: Row, kind: str) -> float | None:
    """A figure over what the row gains on the first of its series: the same for all rows of one reference."""
    devices, base = count(cell.row), count(first)
    if not devices or not base:
        return None
    share = dict(shares(cell.row, first, devices / base)).get(kind)
    if not share:
        return None
    return cell.amount.value / (share * devices / base if meaning == "speedup" else share)


def _stray(cell: Judged, reference: float) -> Judged:
    """An explained figure that has another reference than the rest of its series."""
    usual = [entry for entry in cell.options if entry.base == reference and not entry.wrong]
    best, off = closest(cell.amount.value, usual)
    return cell.flagged(f"{off:+.1f} % off {best.convention}, as the rest is; fits {cell.good[0].convention}")
