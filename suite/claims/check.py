"""The figures of a published table against each other: which convention explains each column, and what none does."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from suite.claims.agreement import COUNTED, UTILISATIONS, with_one_count, with_one_peak, with_one_stated_peak
from suite.claims.cells import Amount, Column, amount
from suite.claims.columns import TEXTS, devices_in, recognised
from suite.claims.conventions import CHECKED, Expected, Row, expected
from suite.claims.judge import Judged, judge
from suite.claims.labels import EXPERTS, labels
from suite.claims.needs import Known, needed
from suite.claims.prompts import with_prompts
from suite.claims.ratio import stated_ratio, with_ratios
from suite.claims.scaling import SCALING, Series, scaling
from suite.claims.series import series_key, with_references
from suite.claims.table import Line, Table
from suite.spec.base import Frozen

#: No batch has as many sequences, and nothing is trained on as few tokens.
_TOKENS_IN_BATCH, _LEAST_TOKENS = 1e5, 1e7
#: Nothing that is published lies beyond these in base units, and products of a row's numbers stay finite within them.
_LEAST_NUMBER, _MOST_NUMBER = 1e-30, 1e30


class Flag(Frozen):
    """A cell that no convention explains, or that cannot be; ``line`` is the file's."""

    line: int
    source: str
    column: str
    cell: str
    reason: str


class Finding(Frozen):
    """A column, of one source where the table names sources. ``conventions`` count the rows that each explains,
    ``would_help`` the underivable ones that a column or a row more would make derivable."""

    source: str
    column: str
    meaning: str
    rows: int
    explained: int
    flagged: int
    not_derivable: int
    unreadable: int
    conventions: dict[str, int]
    would_help: dict[str, int]


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
        _row(line, found, {name: line.cells[header] for name, header in words.items()})
        for line, found in zip(table.rows, amounts, strict=True)
    ]
    rows = with_prompts(with_ratios(table, columns, rows, tolerance), tolerance)
    groups: dict[tuple[object, ...], list[Row]] = defaultdict(list)
    sources: dict[str, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        groups[series_key(row)].append(row)
        sources[row.words.get("source", "")].append(index)
    series = {key: Series(each) for key, each in groups.items()}
    needs: Known = {}
    findings: list[Finding] = []
    flags: list[Flag] = []
    for source, numbers in sources.items():
        for column in columns:
            filled = [at for at in numbers if table.rows[at].cells[column.header] not in ("", "-", "n/a", "N/A")]
            if not filled or column.meaning in TEXTS:
                continue
            lines = [table.rows[at] for at in filled]
            found = [amounts[at][column.meaning] for at in filled]
            cells = _judged(column, [rows[at] for at in filled], lines, found, series, tolerance)
            flags += [
                Flag(line=cell.row.line, source=source, column=column.header, cell=cell.text, reason=cell.reason)
                for cell in cells
                if cell.reason
            ]
            if column.meaning in CHECKED:
                findings.append(_finding(source, column, len(filled), cells, needs))
    used = {column.header for column in columns}
    return Claims(
        tolerance=tolerance,
        columns={column.header: column.meaning for column in columns},
        not_used=[header for header in table.headers if header not in used],
        findings=findings,
        flags=sorted(flags, key=lambda flag: flag.line),
    )


def _row(line: Line, found: Mapping[str, Amount | None], words: dict[str, str]) -> Row:
    """A row for its conventions: "8x A100" counts devices besides, and a batch too large for sequences is of tokens.

    A mean length goes before the longest that a sequence may have.
    """
    usable = {name: each for name, each in found.items() if each and _LEAST_NUMBER < each.value < _MOST_NUMBER}
    values = {name: each.value for name, each in usable.items()}
    if "device" in words:
        count, device = devices_in(words["device"])
        values = values | ({"devices": count} if count and "devices" not in values else {})
        words = words | {"device": device}
    if "mean_length" in values:
        if "sequence" in values:
            values["longest"] = values["sequence"]
        values["sequence"] = values["mean_length"] + values.get("prompt_length", 0.0)
    if values.get("global_batch", 0) >= _TOKENS_IN_BATCH:
        values["batch_tokens"] = values.pop("global_batch")
    if "batch_tokens" in values and "sequence" in values:
        values.setdefault("global_batch", values["batch_tokens"] / values["sequence"])
    if values.get("training_tokens", math.inf) < _LEAST_TOKENS:
        values.pop("training_tokens")
    words |= labels(line.cells, words)
    if "active_params" in values:
        words[EXPERTS] = "yes"
    return Row(line.number, values, words, {name: each.rounding / each.value for name, each in usable.items()})


def _judged(
    column: Column,
    rows: Sequence[Row],
    lines: Sequence[Line],
    found: Sequence[Amount | None],
    series: Mapping[tuple[object, ...], Series],
    tolerance: float,
) -> list[Judged]:
    """The cells of a column that hold a number, each for itself and then against each other."""
    meaning = column.meaning
    readable = [(row, line, each) for row, line, each in zip(rows, lines, found, strict=True) if each is not None]
    cells = [
        judge(column, row, line.cells[column.header], each, _options(meaning, row, series), tolerance)
        for row, line, each in readable
    ]
    if meaning in SCALING:
        return with_references(meaning, cells, tolerance)
    if meaning in UTILISATIONS:
        cells = with_one_peak(meaning, cells, tolerance)
    if meaning in COUNTED:
        cells = with_one_count(meaning, cells, [line.cells for _, line, _ in readable], tolerance)
    return with_one_stated_peak(cells, tolerance) if meaning == "peak_flops" else cells


def _finding(source: str, column: Column, filled: int, cells: Sequence[Judged], needs: Known) -> Finding:
    missing = [cell for cell in cells if not cell.reason and not cell.options]
    explained = [{entry.convention for entry in cell.good} for cell in cells if cell.good]
    helpful = Counter(needed(column.meaning, cell.row, needs) for cell in missing)
    return Finding(
        source=source,
        column=column.header,
        meaning=column.meaning,
        rows=filled,
        explained=len(explained),
        flagged=sum(bool(cell.reason) for cell in cells),
        not_derivable=len(missing),
        unreadable=filled - len(cells),
        conventions=_fewest(explained),
        would_help={text: count for text, count in helpful.most_common() if text},
    )


def _options(meaning: str, row: Row, series: Mapping[tuple[object, ...], Series]) -> list[Expected]:
    if meaning in SCALING:
        return scaling(meaning, row, series[series_key(row)]) + (stated_ratio(row) if meaning == "speedup" else [])
    return expected(meaning, row) if meaning in CHECKED else []


def _fewest(fitting: Sequence[set[str]]) -> dict[str, int]:
    """Few conventions that explain all rows: always the one that explains most of what is left, by name when equal."""
    left, chosen = list(fitting), {}
    while left:
        counts = Counter(name for names in left for name in names)
        name = min(counts, key=lambda each: (-counts[each], len(each), each))
        chosen[name] = counts[name]
        left = [names for names in left if name not in names]
    return chosen
