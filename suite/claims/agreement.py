"""Rows of one table against each other: one peak, one way to count FLOPs."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from statistics import median

from suite.claims.cells import Amount
from suite.claims.conventions import Expected, Row, model_rates
from suite.claims.judge import Judged, agrees, closest
from suite.claims.labels import CONTEXT, FORMAT, TRAINING

UTILISATIONS = ("mfu", "hfu")
COUNTED = (*UTILISATIONS, "tflops_per_device")
#: Rows that agree, at least, and their share of all, before the others are flagged.
_LEAST, _SHARE = 2, 2 / 3
#: Percent by which a row has to be off the convention of the rest: conventions lie close to each other.
_OFF = 5.0
#: So many rows of another convention that have a property to themselves are another part of the table, not a mistake.
_A_PART = 3
_CENTRES = 64

Key = Callable[[Judged], tuple[object, ...]]


def with_one_count(
    meaning: str, cells: Sequence[Judged], tables: Sequence[Mapping[str, str]], tolerance: float
) -> list[Judged]:
    """Flag the rows of a table that count otherwise than the rest does, by peak or by what FLOPs hold.

    ``tables``: the cells of each row as printed. Rows of other precisions, tasks, recompute settings or sections are
    tables of their own, and so are several rows of another convention that share what no row of the rest has.
    """
    found = list(cells)
    for positions in _grouped(cells, _part):
        families = [_families(meaning, cells[at]) for at in positions]
        support = Counter(family for each in families for family in each)
        if not support:
            continue
        usual = max(support, key=support.__getitem__)
        explained = sum(bool(each) for each in families)
        if support[usual] < _LEAST or support[usual] < _SHARE * explained:
            continue
        rest = [tables[at] for at, each in zip(positions, families, strict=True) if usual in each]
        others: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for at, each in zip(positions, families, strict=True):
            if each and usual not in each:
                others[each[0]].append(at)
        parts = [alike for alike in others.values() if not _another_part([tables[at] for at in alike], rest)]
        for at in (at for alike in parts for at in alike):
            cell = cells[at]
            alike = [entry for entry in cell.options if not entry.wrong and _family(meaning, entry) == usual]
            if not alike:
                continue
            best, off = closest(cell.amount.value, alike)
            if abs(off) > _OFF and not agrees(cell.amount, best, tolerance):
                reason = f"{off:+.1f} % off {best.convention}, as the rest is counted; fits {cell.good[0].convention}"
                found[at] = cell.flagged(reason)
    return found


def with_one_peak(meaning: str, cells: Sequence[Judged], tolerance: float) -> list[Judged]:
    """Utilisations of a device whose peak is not known: the peaks that they imply should be one.

    Those that imply the same are explained by it; where two thirds do, the others are flagged.
    """
    found = list(cells)
    unknown = [at for at, cell in enumerate(cells) if not cell.options and not cell.reason]
    for indices in _grouped([cells[at] for at in unknown], _of_one_device):
        positions = [unknown[index] for index in indices]
        implied = [_implied_peaks(meaning, cells[at]) for at in positions]
        name, peak, near = _usual_peak(implied, [_openness(cells[at], tolerance) for at in positions])
        if len(near) < _LEAST or len(near) < _SHARE * len(positions):
            continue
        for index, at in enumerate(positions):
            if index in near:
                text = f"{name} / one peak of all rows, {peak / 1e12:.0f} TFLOP/s"
                entry = Expected(text, cells[at].amount.value)
                found[at] = replace(cells[at], options=(entry,), fits=(entry,))
            elif name in implied[index]:
                own = f"{implied[index][name] / 1e12:.0f} TFLOP/s"
                found[at] = cells[at].flagged(f"by {name} it implies a peak of {own}, the rest {peak / 1e12:.0f}")
    return found


def with_one_stated_peak(cells: Sequence[Judged], tolerance: float) -> list[Judged]:
    """Stated peaks of one device in one number format should be one; the odd ones out are flagged."""
    found = list(cells)
    for group in _grouped(cells, _of_one_device):
        positions = [at for at in group if not cells[at].impossible]
        values = [cells[at].amount.value for at in positions]
        if not values or not cells[positions[0]].row.words.get("device"):
            continue
        usual = max(some(values), key=lambda value: sum(abs(each / value - 1) <= 2 * tolerance for each in values))
        odd = [at for at in positions if abs(cells[at].amount.value / usual - 1) > 2 * tolerance]
        if len(positions) - len(odd) < _LEAST or len(odd) > (1 - _SHARE) * len(positions):
            continue
        for at in odd:
            if not cells[at].reason:
                found[at] = cells[at].flagged(
                    f"another peak than the {usual / 1e12:.4g} TFLOP/s of the other rows of this device"
                )
    return found


def some(values: Sequence[float]) -> list[float]:
    """At most so many of the values, evenly by size: what each of many is compared with."""
    ordered = sorted(values)
    return ordered if len(ordered) <= _CENTRES else ordered[:: -(-len(ordered) // _CENTRES)]


def _grouped(cells: Sequence[Judged], key: Key) -> list[list[int]]:
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at, cell in enumerate(cells):
        groups[key(cell)].append(at)
    return list(groups.values())


def _part(cell: Judged) -> tuple[object, ...]:
    words = cell.row.words
    return tuple(words.get(name) for name in ("source", "precision", FORMAT, TRAINING, CONTEXT))


def _of_one_device(cell: Judged) -> tuple[object, ...]:
    words = cell.row.words
    return (*(words.get(name) for name in ("source", "device", "precision", FORMAT)), cell.row.values.get("device_gib"))


def _families(meaning: str, cell: Judged) -> list[tuple[str, ...]]:
    """The families of the conventions that explain a cell, the plainest first."""
    return list(dict.fromkeys(_family(meaning, entry) for entry in cell.good if entry.family))


def _family(meaning: str, entry: Expected) -> tuple[str, ...]:
    """The convention without what may differ from row to row: recompute, which hardware FLOPs count where there is
    some."""
    if meaning == "mfu":
        return entry.family
    return tuple(part.replace(", recompute", "") for part in entry.family)


def _another_part(others: Sequence[Mapping[str, str]], rest: Sequence[Mapping[str, str]]) -> bool:
    """Whether several rows have one or two cells in common that no other row has."""
    if len(others) < _A_PART:
        return False
    common = [
        (header, cell) for header, cell in others[0].items() if cell and all(row[header] == cell for row in others)
    ]
    telling = [property for property in common if any(row[property[0]] != property[1] for row in rest)]
    return any(
        all(row[one] != first or row[other] != second for row in rest)
        for (one, first), (other, second) in combinations_with_replacement(telling, 2)
    )


def _implied_peaks(meaning: str, cell: Judged) -> dict[str, float]:
    """The peak that a utilisation implies, by what it may be a utilisation of."""
    row: Row = cell.row
    if cell.amount.value <= 0:
        return {}
    values = {name: value for name, value in row.values.items() if name != meaning}
    rates = model_rates(meaning, values, row)
    return {entry.convention: entry.value / cell.amount.value for entry in rates if not entry.wrong and not entry.cost}


def _openness(cell: Judged, tolerance: float) -> float:
    amount: Amount = cell.amount
    rounding = amount.rounding / amount.value if amount.value > 0 else 0.0
    return tolerance + rounding + cell.row.rounding.get("tflops_per_device", 0.0)


def _usual_peak(implied: Sequence[Mapping[str, float]], openness: Sequence[float]) -> tuple[str, float, set[int]]:
    """The convention and the peak that most rows imply, and their positions."""
    best: tuple[str, float, set[int]] = ("", 0.0, set())
    for name in dict.fromkeys(name for peaks in implied for name in peaks):
        for centre in some([peaks[name] for peaks in implied if name in peaks]):
            near = {
                at
                for at, peaks in enumerate(implied)
                if name in peaks and abs(peaks[name] / centre - 1) <= openness[at]
            }
            if len(near) > len(best[2]):
                best = (name, median(implied[at][name] for at in near), near)
    return best
