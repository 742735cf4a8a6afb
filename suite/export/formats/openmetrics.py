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
    figures = [one for one in table.columns if one.kind not in ("text", "texts") and one.name not in table.keys]
    states = [one for one in table.columns if one.name in _STATES] if table.name == "runs" else []
    for column in (*figures, *states):
        known = [(label, row[column.name]) for label, row in zip(labels, kept, strict=True)]
        yield from _family(table, column, [(label, value) for label, value in known if value is not None])
    yield "# EOF\n"


def _family(table: Table, column: Column, known: Sequence[tuple[str, Any]]) -> Iterator[str]:
    """A gauge; of a state one sample for each value that there can be: 1 for the one that is."""
    if not known:
        return
    name = f"suite_{table.noun}_{column.name}" + "_seconds" * (column.kind == "time")
    yield f"# TYPE {name} {'stateset' if column.name in _STATES else 'gauge'}\n"
    unit = next((unit for unit in _UNITS if name.endswith(f"_{unit}")), None)
    if unit is not None:
        yield f"# UNIT {name} {unit}\n"
    yield f"# HELP {name} {_escaped(column.meaning)}\n"
    for label, value in known:
        if column.name in _STATES:
            yield from (f'{name}{{{label},{name}="{one}"}} {int(one == value)}\n' for one in column.values)
        else:
            yield f"{name}{{{label}}} {_value(value)}\n"


def _labels(keys: Sequence[Column], row: Row) -> str:
    """Those of a row; a key that is null has none."""
    return ",".join(f'{key.name}="{_escaped(str(row[key.name]))}"' for key in keys if row[key.name] is not None)


def _value(value: Any) -> str:
    if isinstance(value, datetime):
        return repr(value.timestamp())
    return repr(int(value) if isinstance(value, bool) else value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
