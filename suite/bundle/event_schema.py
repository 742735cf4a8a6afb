"""The fields of ``event_fields.py`` as JSON Schema, without what figures must be of each other."""

from __future__ import annotations

from typing import Any

import msgspec

from suite.bundle.event_fields import FIELDS, TRAINER, Event, Work, fields_of

Schema = dict[str, Any]


def events_schema() -> Schema:
    """Of one line of ``events/*.jsonl``: what every event has, and by its kind what that has."""
    kinds = [(writer, name, kind) for writer, found in FIELDS.items() for name, kind in found.items()]
    own = [(name, kind, field, type_) for _, name, kind in kinds for field, (type_, _) in fields_of(kind).items()]
    schemas, parts = msgspec.json.schema_components([type_ for *_, type_ in own], ref_template="#/$defs/{name}")
    by_field = {(kind, field): schema for (_, kind, field, _), schema in zip(own, schemas, strict=True)}
    return {
        "type": "object",
        "properties": {
            "kind": {"enum": sorted({name for _, name, _ in kinds})},
            "rank": {"type": ["integer", "null"], "minimum": 0, "description": "null: the driver"},
            "time": {"type": "number", "minimum": 0, "exclusiveMaximum": 1e11, "description": "Unix seconds"},
            "seq": {"type": "integer", "minimum": 0, "description": "0, 1, 2 ... in each file"},
        },
        "required": ["kind", "rank", "time", "seq"],
        "allOf": [_when(writer, name, kind, by_field) for writer, name, kind in kinds],
        "$defs": parts,
    }


def _when(writer: str, name: str, kind: type[Event], by_field: dict[tuple[type[Event], str], Schema]) -> Schema:
    rank = {"type": "null" if writer == "driver" else "integer"}
    fields = fields_of(kind)
    wanted: Schema = {
        "properties": {
            field: by_field[kind, field] if is_required else _or_null(by_field[kind, field])
            for field, (_, is_required) in fields.items()
        },
        "required": [field for field, (_, is_required) in fields.items() if is_required],
    }
    if "counts" in fields:  # only a trainer's own log may leave some untold
        wanted["if"] = {"properties": {"source": {"const": TRAINER}}, "required": ["source"]}
        counts = {count: {"type": "integer"} for count in Work.__struct_fields__}
        wanted["else"] = {"properties": {"counts": {"properties": counts}}}
    return {"if": {"properties": {"kind": {"const": name}, "rank": rank}, "required": ["kind", "rank"]}, "then": wanted}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}
