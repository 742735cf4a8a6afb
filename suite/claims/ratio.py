"""Two columns of two systems, and a speed-up that is their ratio."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

from suite.claims.cells import Column, amount
from suite.claims.conventions import Expected, Row
from suite.claims.table import Table

_MOST_COLUMNS = 12
_LEAST_ROWS = 2
_RATES = ("step_time", "train_time", "tokens", "tokens_per_device", "samples", "samples_per_device")
RATIO = "ratio of columns"


def with_ratios(table: Table, columns: Sequence[Column], rows: Sequence[Row], tolerance: float) -> list[Row]:
    """The rows, each with the ratio of those two columns, unknown or of rates, that gives the speed-up of most rows.

    At least two, and half of those that can be compared; else the rows as they are.
    """
    other = {column.header for column in columns if column.meaning not in _RATES}
    candidates = [header for header in table.headers if header not in other][:_MOST_COLUMNS]
    stated = [row.values.get("speedup") for row in rows]
    words: dict[str, str] = {}
    best, most = [], _LEAST_ROWS - 1
    for over, under in permutations(candidates, 2):
        ratio = _ratio(table, over, under)
        pairs = [(value, speedup) for value, speedup in zip(ratio, stated, strict=True) if value and speedup]
        fitting = sum(abs(value - speedup) <= tolerance * speedup for value, speedup in pairs)
        if fitting > most and 2 * fitting >= len(pairs):
            words, best, most = {RATIO: f"{over} over {under}"}, ratio, fitting
    if not best:
        return list(rows)
    return [
        replace(row, values={**row.values, RATIO: value}, words={**row.words, **words}) if value else row
        for row, value in zip(rows, best, strict=True)
    ]


def stated_ratio(row: Row) -> list[Expected]:
    """The speed-up that a row's two columns give."""
    return [Expected(row.words[RATIO], row.values[RATIO])] if RATIO in row.values else []


def _ratio(table: Table, over: str, under: str) -> list[float | None]:
    """Of each row, ``None`` where a cell is no positive number."""
    pairs = [(_number(line.cells[over]), _number(line.cells[under])) for line in table.rows]
    return [above / below if above and below else None for above, below in pairs]


def _number(text: str) -> float | None:
    found = amount(text, Column("", RATIO))
    return found.value if found and 0 < found.value < float("inf") else None
