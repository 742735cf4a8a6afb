"""JSON Lines: one object a row, with every column in the order of the table, null where nothing is known."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from suite.export.columns import time_text
from suite.export.tables import Row, Table


def lines(table: Table, rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(plain(row), ensure_ascii=False, allow_nan=False, separators=(", ", ": ")) + "\n"


def plain(row: Row) -> dict[str, Any]:
    return {name: time_text(value) if isinstance(value, datetime) else value for name, value in row.items()}
