"""JSON Schemas of the files that the suite writes, made from what reads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import BaseModel

from suite.bundle.archive.index import ARCHIVE_SCHEMA, Index
from suite.bundle.event_schema import events_schema
from suite.bundle.events import EVENTS_SCHEMA
from suite.bundle.imported.record import IMPORT_SCHEMA, IMPORTED_SCHEMA, Import, ImportedRecord
from suite.bundle.record import RECORD_SCHEMA, Record
from suite.launch.cluster.submission import SUBMISSION_SCHEMA, Submission
from suite.spec.manifest import MANIFEST_SCHEMA, Manifest

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MODELS: dict[str, tuple[type[BaseModel], str, str]] = {
    "manifest": (Manifest, MANIFEST_SCHEMA, "manifest.json: everything that is resolved before a run, hashed"),
    "record": (Record, RECORD_SCHEMA, "record.json: what is derived from the events of a run"),
    "submission": (Submission, SUBMISSION_SCHEMA, ".submitted/RUN.json: a run that a cluster has, or had"),
    "archive": (Index, ARCHIVE_SCHEMA, "suite-archive.json: the index of a file of suite pack"),
    "import": (Import, IMPORT_SCHEMA, "import.json: another tool's log that was imported, and what was told of it"),
    "imported": (ImportedRecord, IMPORTED_SCHEMA, "record.json of an import: figures that were not measured here"),
}


def of_model(model: type[BaseModel], name: str, title: str) -> dict[str, Any]:
    """The schema of a file that a model reads; ``name``: the text of its field ``schema``."""
    schema = model.model_json_schema(by_alias=True, mode="validation")
    if model is not Manifest:  # a manifest's hash covers its fields, and no reader takes more of them
        schema = _open(schema)
    schema["required"] = sorted({*schema["required"], "schema"})
    return _headed(name, title, schema)


def _headed(name: str, title: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "$schema": _DIALECT, "$id": f"urn:{name.replace('/', ':')}", "title": title}


def _open(value: Any) -> Any:
    """The same, where later versions may have more fields."""
    if isinstance(value, dict):
        return {
            key: _open(inner) for key, inner in value.items() if not (key == "additionalProperties" and inner is False)
        }
    return [_open(inner) for inner in value] if isinstance(value, list) else value


def _events() -> dict[str, Any]:
    return _headed(EVENTS_SCHEMA, "a line of events/*.jsonl: what driver and ranks tell", events_schema())


#: By their names. What is not known is null; fields may be added.
SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {
    **{name: partial(of_model, *entry) for name, entry in _MODELS.items()},
    "events": _events,
}
