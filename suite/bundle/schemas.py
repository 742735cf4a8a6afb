"""JSON Schemas of the files that the suite writes, made from what reads them."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from pydantic import BaseModel

from suite.bundle.archive.index import ARCHIVE_SCHEMA, Index
from suite.bundle.event_fields import FIELDS, TRAINER, Work
from suite.bundle.events import EVENTS_SCHEMA
from suite.bundle.imported.record import IMPORT_SCHEMA, IMPORTED_SCHEMA, Import, ImportedRecord
from suite.bundle.record import RECORD_SCHEMA, Record
from suite.launch.cluster.submission import SUBMISSION_SCHEMA, Submission
from suite.spec.layout import Layout
from suite.spec.manifest import MANIFEST_SCHEMA, Manifest

Schema = dict[str, Any]
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MODELS: dict[str, tuple[type[BaseModel | Record], str, str]] = {
    "manifest": (Manifest, MANIFEST_SCHEMA, "manifest.json: everything that is resolved before a run, hashed"),
    "record": (Record, RECORD_SCHEMA, "record.json: what is derived from the events of a run"),
    "submission": (Submission, SUBMISSION_SCHEMA, ".submitted/RUN.json: a run that a cluster has, or had"),
    "archive": (Index, ARCHIVE_SCHEMA, "suite-archive.json: the index of a file of suite pack"),
    "import": (Import, IMPORT_SCHEMA, "import.json: another tool's log that was imported, and what was told of it"),
    "imported": (ImportedRecord, IMPORTED_SCHEMA, "record.json of an import: figures that were not measured here"),
}


def of_model(model: type[BaseModel | Record], name: str, title: str) -> Schema:
    """The schema of a file that a model reads; ``name``: the text of its field ``schema``."""
    schema = _record_schema() if issubclass(model, Record) else model.model_json_schema(by_alias=True)
    if model is not Manifest:  # a manifest's hash covers its fields, and no reader takes more of them
        schema = json.loads(json.dumps(schema), object_hook=_open)
    schema["required"] = sorted({*schema["required"], "schema"})
    return headed(name, title, schema)


def _record_schema() -> Schema:
    """msgspec leaves it open that a choice of texts is a text, and knows no layout."""
    layout = {"$ref": "#/$defs/Layout"}
    _, parts = msgspec.json.schema_components([Record], schema_hook=lambda kind: layout, ref_template="#/$defs/{name}")
    parts = json.loads(json.dumps(parts), object_hook=lambda one: {"type": "string", **one} if "enum" in one else one)
    return {**parts.pop("Record"), "$defs": {**parts, "Layout": Layout.model_json_schema(by_alias=True)}}


def headed(name: str, title: str, schema: Schema) -> Schema:
    """A schema with what it is called."""
    return {**schema, "$schema": _DIALECT, "$id": f"urn:{name.replace('/', ':')}", "title": title}


def _open(value: Schema) -> Schema:
    """The same, where later versions may have more fields."""
    return {key: inner for key, inner in value.items() if not (key == "additionalProperties" and inner is False)}


_HEAD: Schema = {
    "rank": {"type": ["integer", "null"], "minimum": 0, "description": "null: the driver"},
    "time": {"type": "number", "minimum": 0, "exclusiveMaximum": 1e11, "description": "Unix seconds"},
    "seq": {"type": "integer", "minimum": 0, "description": "0, 1, 2 ... in each file"},
}


def _events_schema() -> Schema:
    """Of one line of ``events/*.jsonl``: what all events have, and each kind, without what figures must be
    of each other."""
    kinds = [(writer, name, kind) for writer, found in FIELDS.items() for name, kind in found.items()]
    _, parts = msgspec.json.schema_components([kind for *_, kind in kinds], ref_template="#/$defs/{name}")
    events = {kind: parts.pop(kind.__name__) for kind in {kind for *_, kind in kinds}}
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": sorted({name for _, name, _ in kinds})}, **_HEAD},
        "required": ["kind", *_HEAD],
        "allOf": [_when(writer, name, events[kind]) for writer, name, kind in kinds],
        "$defs": parts,
    }
    return headed(EVENTS_SCHEMA, "a line of events/*.jsonl: what driver and ranks tell", schema)


def _when(writer: str, name: str, event: Schema) -> Schema:
    rank = {"type": "null" if writer == "driver" else "integer"}
    own = {field: schema for field, schema in event["properties"].items() if field not in ("kind", *_HEAD)}
    wanted: Schema = {"properties": own, "required": [field for field in event["required"] if field in own]}
    if "counts" in own:  # only a trainer's own log may leave some untold
        wanted["if"] = {"properties": {"source": {"const": TRAINER}}, "required": ["source"]}
        counts = {count: {"type": "integer"} for count in Work.__struct_fields__}
        wanted["else"] = {"properties": {"counts": {"properties": counts}}}
    return {"if": {"properties": {"kind": {"const": name}, "rank": rank}, "required": ["kind", "rank"]}, "then": wanted}


#: By their names. What is not known is null; fields may be added.
SCHEMAS: dict[str, Callable[[], Schema]] = {
    **{name: partial(of_model, *entry) for name, entry in _MODELS.items()},
    "events": _events_schema,
}
