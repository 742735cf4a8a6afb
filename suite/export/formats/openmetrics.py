"""OpenMetrics text (version 1.0): a family of gauges for each column of figures, and how each run ended.

What tells rows apart is in their labels. Times are Unix seconds. Nulls have no sample. No sample has a time of its own:
what scrapes or pushes them gives it theirs.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from suite.export.columns import KEYS, Column
from suite.export.tables import IMPORTED, Row, Table

_STATES = ("status", "validity")
_NO_LABELS = {"schema", "manifest_hash", "work_hash", "digest", *_STATES}
#: What tells rows apart, or what they are grouped by; figures are never among these.
_LABELS = {column.name for column in KEYS} - _NO_LABELS | {"phase", "iteration"}
_LABELS_OF_IMPORTED = ("mark", "id", "path", "tool", "model", "devices")


def lines(table: Table, rows: Iterable[Row]) -> Iterator[str]:
    """All samples of a family follow each other, in the order of the rows."""
    names = _LABELS_OF_IMPORTED if table.name == IMPORTED else _LABELS
    keys = [column.name for column in table.columns if column.name in names]
    labelled = [(_labels(keys, row), row) for row in rows]
    figures = [one for one in table.columns if one.kind not in ("text", "texts") and one.name not in names]
    states = [one for one in table.columns if one.name in _STATES] if table.name == "runs" else []
    for column in (*figures, *states):
        yield from _family(table, column, [(labels, row[column.name]) for labels, row in labelled])
    yield "# EOF\n"


def _family(table: Table, column: Column, samples: list[tuple[str, Any]]) -> Iterator[str]:
    """A gauge; of a state one sample for each value that there can be: 1 for the one that is."""
    known = [(labels, value) for labels, value in samples if value is not None]
    if not known:
        return
    name = f"suite_{table.noun}_{column.name}" + "_seconds" * (column.kind == "time")
    yield f"# TYPE {name} {'stateset' if column.name in _STATES else 'gauge'}\n"
    yield f"# HELP {name} {_escaped(column.meaning)}\n"
    for labels, value in known:
        if column.name in _STATES:
            yield from (f'{name}{{{labels},{name}="{one}"}} {int(one == value)}\n' for one in column.values)
        else:
            yield f"{name}{{{labels}}} {_value(value)}\n"


def _labels(keys: Iterable[str], row: Row) -> str:
    """Those of a row; a key that is null has none."""
    return ",".join(f'{key}="{_escaped(str(row[key]))}"' for key in keys if row[key] is not None)


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return repr(value.timestamp())
    return repr(int(value) if isinstance(value, bool) else value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
