"""Scaling figures of one series: one reference for all, where it is in the table."""

from collections import defaultdict
from collections.abc import Sequence

from suite.claims.conventions import Row
from suite.claims.judge import Judged, closest
from suite.claims.ratio import RATIO
from suite.claims.scaling import count, strays


def with_references(cells: Sequence[Judged], tolerance: float) -> list[Judged]:
    """The scaling figures of a column, each against the reference of its series (a source, model and device).

    Where that is not in the table nothing follows for a row.
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
        for at in numbers:
            if not cells[at].good and not cells[at].certain:
                found[at] = cells[at].underivable()
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


def _stray(cell: Judged, reference: float) -> Judged:
    """An explained figure that has another reference than the rest of its series."""
    usual = [entry for entry in cell.options if entry.base == reference and not entry.wrong]
    best, off = closest(cell.amount.value, usual)
    return cell.flagged(f"{off:+.1f} % off {best.convention}, as the rest is; fits {cell.good[0].convention}")
