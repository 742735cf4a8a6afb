"""The figures of a published table against each other: which convention explains each column, and what none does."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from suite.claims.cells import Amount, Column, amount, other_reading
from suite.claims.columns import TEXTS, device_in, devices_in, recognised
from suite.claims.conventions import CHECKED, Expected, Row, expected
from suite.claims.ratio import stated_ratio, with_ratios
from suite.claims.scaling import SCALING, count, scaling, strays
from suite.claims.table import Table
from suite.spec.base import Frozen

#: A share above it is no noise.
_HIGHEST = {"mfu": 1.0, "hfu": 1.0, "efficiency": 1.1}
#: No batch has as many sequences, and nothing is trained on as few tokens.
_TOKENS_IN_BATCH, _LEAST_TOKENS = 1e5, 1e7


class _Checked(NamedTuple):
    """A cell with all values that it could have, and those of them that it has."""

    row: Row
    text: str
    amount: Amount
    fits: list[Expected]
    options: list[Expected]


class Flag(Frozen):
    """A cell that no convention explains, or that cannot be; ``line`` is the file's."""

    line: int
    source: str
    column: str
    cell: str
    reason: str


class Finding(Frozen):
    """A column, of one source where the table names sources. ``conventions`` count the rows that each explains."""

    source: str
    column: str
    meaning: str
    rows: int
    explained: int
    flagged: int
    not_derivable: int
    unreadable: int
    conventions: dict[str, int]


class Claims(Frozen):
    """The outcome for a whole table."""

    tolerance: float
    columns: dict[str, str]
    not_used: list[str]
    findings: list[Finding]
    flags: list[Flag]


def check_claims(table: Table, mapping: Mapping[str, str], tolerance: float) -> Claims:
    """Recompute every cell that follows from others, within its rounding and ``tolerance`` (a fraction).

    Raises UsageError where no column is known.
    """
    columns = recognised(table, mapping)
    amounts = [{column.meaning: amount(line.cells[column.header], column) for column in columns} for line in table.rows]
    words = {column.meaning: column.header for column in columns if column.meaning in TEXTS}
    rows = [
        _row(line.number, _usable(found), {name: line.cells[header] for name, header in words.items()})
        for line, found in zip(table.rows, amounts, strict=True)
    ]
    rows = with_ratios(table, columns, rows, tolerance)
    groups = _groups(rows)
    findings: list[Finding] = []
    flags: list[Flag] = []
    for source in dict.fromkeys(row.words.get("source", "") for row in rows):
        for column in columns:
            numbers = [index for index, row in enumerate(rows) if row.words.get("source", "") == source]
            cells = [
                (rows[index], table.rows[index].cells[column.header], amounts[index][column.meaning])
                for index in numbers
                if table.rows[index].cells[column.header] not in ("", "-", "n/a", "N/A")
            ]
            if cells and column.meaning not in TEXTS:
                finding, wrong = _column(source, column, cells, groups, tolerance)
                flags += wrong
                findings += [finding] if column.meaning in CHECKED else []
    used = {column.header for column in columns}
    return Claims(
        tolerance=tolerance,
        columns={column.header: column.meaning for column in columns},
        not_used=[header for header in table.headers if header not in used],
        findings=findings,
        flags=sorted(flags, key=lambda flag: flag.line),
    )


def _row(line: int, values: dict[str, float], words: dict[str, str]) -> Row:
    """A row for its conventions: "8x A100" counts devices besides, and a batch too large for sequences is of tokens.

    A mean length goes before the longest that a sequence may have.
    """
    if "device" in words:
        count = devices_in(words["device"])
        values = values | ({"devices": count} if count and "devices" not in values else {})
        words = words | {"device": device_in(words["device"])}
    if "mean_length" in values:
        values["sequence"] = values["mean_length"]
    if values.get("global_batch", 0) >= _TOKENS_IN_BATCH:
        values["batch_tokens"] = values.pop("global_batch")
    if "batch_tokens" in values and "sequence" in values:
        values.setdefault("global_batch", values["batch_tokens"] / values["sequence"])
    if values.get("training_tokens", math.inf) < _LEAST_TOKENS:
        values.pop("training_tokens")
    return Row(line, values, words)


def _usable(found: Mapping[str, Amount | None]) -> dict[str, float]:
    return {name: each.value for name, each in found.items() if each and math.isfinite(each.value) and each.value > 0}


def _key(row: Row) -> tuple[object, ...]:
    return (row.words.get("source"), row.words.get("model"), row.words.get("device"), row.values.get("params"))


def _groups(rows: Sequence[Row]) -> Mapping[tuple[object, ...], Sequence[Row]]:
    """Rows by source, model and device: a scaling efficiency compares these."""
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[_key(row)].append(row)
    return groups


def _column(
    source: str,
    column: Column,
    cells: Sequence[tuple[Row, str, Amount | None]],
    groups: Mapping[tuple[object, ...], Sequence[Row]],
    tolerance: float,
) -> tuple[Finding, list[Flag]]:
    flags: list[Flag] = []
    fitting: list[set[str]] = []
    checked: list[_Checked] = []
    missing = unreadable = 0
    for row, text, found in cells:
        if found is None:
            unreadable += 1
            continue
        options = _options(column.meaning, row, groups)
        fits = [entry for entry in options if _agree(found, entry.value, tolerance)]
        other = None if fits else other_reading(text, column)
        if other is not None and any(_agree(other, entry.value, tolerance) for entry in options):
            found = other
            fits = [entry for entry in options if _agree(found, entry.value, tolerance)]
        good = {entry.convention for entry in fits if not entry.wrong}
        reason = _impossible(column.meaning, found.value, fits)
        if not reason and options and not good:
            reason = f"it is {fits[0].wrong}: fits {fits[0].convention}" if fits else _nearest(found.value, options)
        if reason:
            flags.append(Flag(line=row.line, source=source, column=column.header, cell=text, reason=reason))
        elif options:
            fitting.append(good)
            checked.append(_Checked(row, text, found, fits, options))
        else:
            missing += 1
    if column.meaning in SCALING:
        stray = _strays(source, column, checked)
        flags += [flag for flag, _ in stray]
        fitting = [names for position, names in enumerate(fitting) if position not in {at for _, at in stray}]
    return (
        Finding(
            source=source,
            column=column.header,
            meaning=column.meaning,
            rows=len(cells),
            explained=len(fitting),
            flagged=len(flags),
            not_derivable=missing,
            unreadable=unreadable,
            conventions=_fewest(fitting),
        ),
        flags,
    )


def _options(meaning: str, row: Row, groups: Mapping[tuple[object, ...], Sequence[Row]]) -> list[Expected]:
    if meaning in SCALING:
        return scaling(meaning, row, groups[_key(row)]) + (stated_ratio(row) if meaning == "speedup" else [])
    return expected(meaning, row) if meaning in CHECKED else []


def _strays(source: str, column: Column, checked: Sequence[_Checked]) -> list[tuple[Flag, int]]:
    """Explained scaling figures that have another reference than the rest of their series, with their positions."""
    series: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for position, cell in enumerate(checked):
        series[_key(cell.row)].append(position)
    found = []
    for positions in series.values():
        bases = [
            (count(checked[at].row) or 0.0, {entry.base for entry in checked[at].fits if not entry.wrong})
            for at in positions
        ]
        reference, stray = strays(bases)
        for at in (positions[index] for index in stray):
            row, text, value, fits, options = checked[at]
            usual = [entry for entry in options if entry.base == reference and not entry.wrong]
            best, off = _closest(value.value, usual)
            reason = f"{off:+.1f} % off {best.convention}, as the rest is; fits {fits[0].convention}"
            found.append((Flag(line=row.line, source=source, column=column.header, cell=text, reason=reason), at))
    return found


def _agree(found: Amount, value: float, tolerance: float) -> bool:
    return abs(found.value - value) <= found.rounding + tolerance * abs(value)


def _impossible(meaning: str, value: float, fits: Sequence[Expected]) -> str:
    if not math.isfinite(value):
        return "not a finite number"
    if value <= 0:
        return "zero or negative"
    highest = _HIGHEST.get(meaning)
    if highest is None or value <= highest:
        return ""
    if meaning == "efficiency":
        wrong = next((f": fits {entry.convention}" for entry in fits if entry.wrong), "")
        return f"{100 * value:.0f} % is a speed-up, not an efficiency{wrong}"
    return f"{100 * value:.0f} % of a peak is over 100 %"


def _nearest(value: float, options: Sequence[Expected]) -> str:
    best, off = _closest(value, [entry for entry in options if not entry.wrong] or options)
    return f"no convention explains it; nearest is {off:+.1f} % off: {best.convention}"


def _closest(value: float, options: Sequence[Expected]) -> tuple[Expected, float]:
    """The option nearest to a figure, and how far the figure is from it in percent."""
    best = min(options, key=lambda entry: abs(math.log(value / entry.value)))
    return best, 100 * (value / best.value - 1)


def _fewest(fitting: Sequence[set[str]]) -> dict[str, int]:
    """Few conventions that explain all rows: always the one that explains most of what is left, by name when equal."""
    left, chosen = list(fitting), {}
    while left:
        counts = Counter(name for names in left for name in names)
        name = min(counts, key=lambda each: (-counts[each], len(each), each))
        chosen[name] = counts[name]
        left = [names for names in left if name not in names]
    return chosen
