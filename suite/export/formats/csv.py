"""CSV (RFC 4180) that no spreadsheet takes for formulas, and that reads back as what was written.

Every text is quoted, whatever it holds, so that no other separator of a spreadsheet's locale divides it. A text that a
spreadsheet would take for a formula, or that begins with an apostrophe itself, gets an apostrophe in front: who reads
the file by a program takes one away again. Null is an empty field without quotes; there is no empty text. Lists of
texts are JSON in a text, which begins with a bracket. Numbers have as many digits as they need to be the same again.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from suite.export.columns import time_text
from suite.export.tables import Row, Table

#: Of formulas, the wide forms too, which some spreadsheets take for the same.
_FORMULAS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def lines(table: Table, rows: Iterable[Row]) -> Iterator[str]:
    yield ",".join(table.names) + "\n"
    for row in rows:
        yield ",".join(map(_field, row.values())) + "\n"


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, datetime):
        return time_text(value)
    if isinstance(value, list):
        return _quoted(json.dumps(value, ensure_ascii=False))
    return _quoted(f"'{value}" if value.startswith((*_FORMULAS, "'")) else value)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
