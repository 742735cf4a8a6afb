"""Tables that people publish, read as text: CSV, Markdown, or the published format with a metric a row."""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from suite.spec.base import UsageError
from suite.spec.foreign import DOCUMENT_BYTES, read_bytes

_MOST_ROWS, _MOST_COLUMNS, _LONGEST_CELL = 100_000, 200, 200
#: Of a table whose metrics become columns.
_MOST_CELLS = 5_000_000
_DASHES = re.compile(r":?-+:?")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_LONG_FORM = {"config_id", "metric", "value"}


@dataclass(frozen=True)
class Line:
    """One row: its line in the file, and its cells by header."""

    number: int
    cells: Mapping[str, str]


@dataclass(frozen=True)
class Table:
    """A table as text; every cell is clean of control characters and at most 200 characters long."""

    headers: tuple[str, ...]
    rows: tuple[Line, ...]


def read_table(path: Path) -> Table:
    """The table in a CSV file (comma, semicolon or tab), or the first of a Markdown file.

    Raises UsageError for a file that cannot be read, is larger than 16 MiB or holds no table with a row.
    """
    name = shown(str(path))
    text = read_bytes(path, name, DOCUMENT_BYTES, by_user=True).decode("utf-8-sig", errors="replace")
    return parse_table(text, name, markdown=path.suffix.lower() in (".md", ".markdown"))


def parse_table(text: str, name: str, markdown: bool) -> Table:
    """The table in ``text``; ``name`` is what messages call it. Raises UsageError where there is none."""
    lines = _markdown(text) if markdown else _csv(text, name)
    if len(lines) < 2:
        raise UsageError(f"{name} holds no table: a header and at least one row are needed")
    if len(lines) > _MOST_ROWS or len(lines[0][1]) > _MOST_COLUMNS:
        raise UsageError(f"{name} has more than {_MOST_ROWS} rows or {_MOST_COLUMNS} columns: check a part of it")
    headers = _unique([shown(cell) for cell in lines[0][1]])
    rows = [
        Line(number, dict(zip(headers, [shown(cell) for cell in cells] + [""] * len(headers), strict=False)))
        for number, cells in lines[1:]
    ]
    if set(headers) >= _LONG_FORM:
        return _widened(headers, rows, name)
    return Table(tuple(headers), tuple(rows))


def shown(text: str) -> str:
    """Text that is safe on a terminal: control and direction characters escaped, cut at 200 characters."""
    clean = _UNSEEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text.strip())
    return clean if len(clean) <= _LONGEST_CELL else clean[: _LONGEST_CELL - 3] + "..."


def _csv(text: str, name: str) -> list[tuple[int, list[str]]]:
    first = text.lstrip().partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(text.replace("\0", "").splitlines(keepends=True), delimiter=delimiter)
    try:
        return [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise UsageError(f"{name} is not CSV at line {reader.line_num}: {error}") from error


def _markdown(text: str) -> list[tuple[int, list[str]]]:
    lines = text.splitlines()
    for number in range(1, len(lines)):
        if "|" in lines[number - 1] and "|" in lines[number] and _is_rule(lines[number]):
            rows = [(number, _pipes(lines[number - 1]))]
            for below in range(number + 1, len(lines)):
                if "|" not in lines[below]:
                    break
                rows.append((below + 1, _pipes(lines[below])))
            return rows
    return []


def _is_rule(line: str) -> bool:
    """Whether a line is the one of dashes below a header: each cell for itself, so that no line takes long."""
    cells = line.strip().removeprefix("|").removesuffix("|").split("|")
    return all(_DASHES.fullmatch(cell.strip()) for cell in cells)


def _pipes(line: str) -> list[str]:
    body = line.strip().removeprefix("|")
    body = body[:-1] if body.endswith("|") and not body.endswith("\\|") else body
    return [cell.replace("\\|", "|").strip().strip("*`_ ") for cell in re.split(r"(?<!\\)\|", body)]


def _unique(headers: Sequence[str]) -> list[str]:
    names: list[str] = []
    for position, header in enumerate(headers, start=1):
        name = header or f"column {position}"
        names.append(name if name not in names else f"{name} ({position})")
    return names


def _widened(headers: Sequence[str], rows: Sequence[Line], name: str) -> Table:
    """A metric a row becomes a column a metric; what a source did not print itself (derived) is no claim of it.

    Raises UsageError for more cells than a table may have.
    """
    kept = [name for name in headers if name not in ("metric", "value", "unit", "provenance")]
    wide: dict[tuple[str, str], tuple[int, dict[str, str]]] = {}
    metrics: dict[str, None] = {}
    for row in rows:
        if row.cells.get("provenance") in ("derived", "digitized"):
            continue
        key = (row.cells.get("source_id", ""), row.cells["config_id"])
        cells = wide.setdefault(key, (row.number, {name: row.cells[name] for name in kept}))[1]
        metric = f"{row.cells['metric']} ({row.cells['unit']})" if row.cells.get("unit") else row.cells["metric"]
        metrics.setdefault(metric)
        cells.setdefault(metric, row.cells["value"])
    names = (*kept, *(metric for metric in metrics if metric not in kept))
    if len(names) * len(wide) > _MOST_CELLS:
        raise UsageError(
            f"{name} has {len(names)} metrics and columns of {len(wide)} configurations, more than {_MOST_CELLS} cells"
        )
    return Table(names, tuple(Line(number, dict.fromkeys(names, "") | cells) for number, cells in wide.values()))
