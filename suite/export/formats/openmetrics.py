"""OpenMetrics text (version 1.0): a family of gauges for each column of figures, and how each run ended.

What tells rows apart is in their labels. Times are Unix seconds. Nulls have no sample. No sample has a time of its own:
what scrapes or pushes them gives it theirs.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from suite.export.columns import Column
from suite.export.tables import Row, Table

#: Units that a name must end in, by the standard, if it is told.
_UNITS = ("seconds", "bytes", "joules")
_STATES = ("status", "validity")


def lines(table: Table, rows: Iterable[Row]) -> Iterator[str]:
    """All samples of a family follow each other, in the order of the rows."""
    kept = list(rows)
    keys = [column for column in table.columns if column.name in table.keys and column.name not in _STATES]
    labels = [_labels(keys, row) for row in kept]
    for column in table.columns:
        if column.kind in ("integer", "number", "boolean", "time") and column.name not in table.keys:
            yield from _gauge(table, column, kept, labels)
    if table.name == "runs":
        for column in (column for column in table.columns if column.name in _STATES):
            yield from _states(table, column, kept, labels)
    yield "# EOF\n"


def _gauge(table: Table, column: Column, rows: Sequence[Row], labels: Sequence[str]) -> Iterator[str]:
    found = [(label, row[column.name]) for label, row in zip(labels, rows, strict=True) if row[column.name] is not None]
    if not found:
        return
    name = f"suite_{table.noun}_{column.name}" + "_seconds" * (column.kind == "time")
    yield from _head(name, "gauge", column.meaning)
    for label, value in found:
        yield f"{name}{{{label}}} {_value(value)}\n"


def _states(table: Table, column: Column, rows: Sequence[Row], labels: Sequence[str]) -> Iterator[str]:
    """One sample for each value that there can be: 1 for the one that is."""
    name = f"suite_{table.noun}_{column.name}"
    known = [(label, row[column.name]) for label, row in zip(labels, rows, strict=True) if row[column.name] is not None]
    if not known:
        return
    yield from _head(name, "stateset", column.meaning)
    for label, state in known:
        for value in column.values:
            yield f'{name}{{{label},{name}="{value}"}} {int(value == state)}\n'


def _head(name: str, kind: str, meaning: str) -> Iterator[str]:
    yield f"# TYPE {name} {kind}\n"
    unit = next((unit for unit in _UNITS if kind == "gauge" and name.endswith(f"_{unit}")), None)
    if unit is not None:
        yield f"# UNIT {name} {unit}\n"
    yield f"# HELP {name} {_escaped(meaning)}\n"


def _labels(keys: Sequence[Column], row: Row) -> str:
    """Those of a row; a key that is null has none."""
    return ",".join(f'{key.name}="{_escaped(str(row[key.name]))}"' for key in keys if row[key.name] is not None)


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return repr(value.timestamp())
    return repr(int(value) if isinstance(value, bool) else value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
