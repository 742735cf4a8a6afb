"""The JSON Schemas that are published, that of exported rows among them, made from the code when they are asked for."""

from collections.abc import Callable
from typing import Any

from suite.bundle.schemas import SCHEMAS, headed
from suite.export.columns import EXPORT_SCHEMA, LONGEST_TEXT, MOST_TEXTS, Column
from suite.export.tables import TABLES
from suite.spec.base import UsageError
from suite.spec.names import nearest
from suite.tune.study import study_schema

_KINDS: dict[str, dict[str, Any]] = {
    "text": {"type": "string", "minLength": 1, "maxLength": LONGEST_TEXT},
    "texts": {"type": "array", "maxItems": MOST_TEXTS, "items": {"type": "string", "maxLength": LONGEST_TEXT}},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$"},
}


def json_schema() -> dict[str, Any]:
    """Of one row of any table, as JSON Lines have it."""
    rows = {
        name: {
            "type": "object",
            "properties": {column.name: _property(column) for column in table.columns},
            "required": list(table.names),
            "additionalProperties": False,
        }
        for name, table in TABLES.items()
    }
    refs = [{"$ref": f"#/$defs/{name}"} for name in TABLES]
    return headed(EXPORT_SCHEMA, f"A row of {EXPORT_SCHEMA}", {"anyOf": refs, "$defs": rows})


def _property(column: Column) -> dict[str, Any]:
    """``unit`` is a keyword of our own, which validators pass over."""
    body: dict[str, Any] = dict(_KINDS[column.kind])
    if column.values:
        body = {"enum": list(column.values)}
    if not column.required:
        body = {"anyOf": [body, {"type": "null"}]}
    return {"description": column.meaning, **({"unit": column.unit} if column.unit else {}), **body}


_ALL: dict[str, Callable[[], dict[str, Any]]] = {**SCHEMAS, "study": study_schema, "export": json_schema}


def schema_names() -> list[str]:
    return sorted(_ALL)


def schema(name: str) -> dict[str, Any]:
    """One of them. Raises UsageError for a name that none has."""
    if name not in _ALL:
        raise UsageError(f"no schema {name!r}{nearest(name, schema_names())}; there are {', '.join(schema_names())}")
    return _ALL[name]()
