"""The JSON Schema of exported rows, and the tables of columns in docs/export.md, from the columns themselves.

``python -m suite.export.schema`` writes the file that is published with the package, and prints the tables.
"""

from __future__ import annotations

import json
from typing import Any

from suite.export.columns import LONGEST_TEXT, MOST_TEXTS, Column
from suite.export.keys import EXPORT_SCHEMA
from suite.export.tables import TABLES, Table
from suite.spec.schema_files import FOLDER

FILE = FOLDER / "export.json"
_TIME = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"
_TEXT = {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT}
_KINDS: dict[str, dict[str, Any]] = {
    "text": _TEXT,
    "texts": {"type": "array", "maxItems": MOST_TEXTS, "items": {"type": "string", "maxLength": LONGEST_TEXT}},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "pattern": _TIME},
}


def json_schema() -> dict[str, Any]:
    """Of one row of any table, as JSON Lines have it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{EXPORT_SCHEMA.replace('/', ':')}",
        "title": f"A row of {EXPORT_SCHEMA}",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in TABLES],
        "$defs": {name: _object(table) for name, table in TABLES.items()},
    }


def _object(table: Table) -> dict[str, Any]:
    return {
        "type": "object",
        "description": f"One row: {table.row_is}.",
        "properties": {column.name: _property(column) for column in table.columns},
        "required": list(table.names),
        "additionalProperties": False,
    }


def _property(column: Column) -> dict[str, Any]:
    """``unit`` is a keyword of our own, which validators pass over."""
    body: dict[str, Any] = dict(_KINDS[column.kind])
    if column.values:
        body = {"enum": list(column.values)}
    if not column.required:
        body = {"anyOf": [body, {"type": "null"}]}
    return {"description": column.meaning, **({"unit": column.unit} if column.unit else {}), **body}


def schema_text() -> str:
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(schema_text(), encoding="utf-8")
