"""The checks of ``event_fields.py`` as JSON Schema, for other programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suite.bundle import event_fields
from suite.bundle.amounts import LEAST_SECONDS, MOST_COUNT, MOST_SECONDS
from suite.bundle.event_fields import FIELDS, FREE, NULLABLE, OPTIONAL, TRAINER, WORDS, Kind
from suite.bundle.record import Counts

Schema = dict[str, Any]
_MOST_NUMBER, _LATEST = 1e30, 1e11
_TEXT: Schema = {"type": "string"}
_COUNT: Schema = {"type": "integer", "minimum": 0, "maximum": MOST_COUNT}
_BYTES: Schema = {**_COUNT, "type": ["integer", "null"]}
_SECONDS: Schema = {"type": "number", "minimum": 0, "maximum": MOST_SECONDS}
_NUMBER: Schema = {"type": ["number", "null"], "exclusiveMinimum": -_MOST_NUMBER, "exclusiveMaximum": _MOST_NUMBER}
_FIGURE: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1e12}
_CODE: Schema = {"type": ["integer", "null"], "exclusiveMinimum": -(1 << 31), "exclusiveMaximum": 1 << 31}


def _object(properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, **more}


def _counts(values: dict[str, Schema]) -> Schema:
    return _object({name: values.get(name, _COUNT) for name in Counts.model_fields}, required=[*Counts.model_fields])


_SOME: Schema = {**_COUNT, "minimum": 1}
_OWN_COUNTS = _counts({"samples": _SOME, "response_tokens": _SOME})
_TOLD_COUNTS = _counts(
    {
        **dict.fromkeys(Counts.model_fields, _BYTES),
        "samples": _SOME,
        "prompt_tokens": _COUNT,
        "response_tokens": _SOME,
    }
)
_ROLE = _object({"ranks": _SOME, "busy_seconds": _SECONDS}, required=["ranks", "busy_seconds"])
#: Check -> what it takes, as far as JSON Schema can say it: what figures must be of each other, it cannot.
_OF: dict[Callable[[Any], bool], Schema] = {
    event_fields._is_text: _TEXT,
    event_fields._is_count: _COUNT,
    event_fields._is_bytes: _BYTES,
    event_fields._is_seconds: _SECONDS,
    event_fields._is_iteration_seconds: {**_SECONDS, "minimum": LEAST_SECONDS},
    event_fields._is_text_list: {"type": "array", "items": _TEXT},
    event_fields._is_object: {"type": "object"},
    event_fields._is_counts: _OWN_COUNTS,
    event_fields._is_stats: {"type": "object", "additionalProperties": _NUMBER},
    event_fields._is_parts: {"type": "object", "additionalProperties": _SECONDS},
    event_fields._is_exit_codes: {
        "type": ["array", "object"],
        "items": _CODE,
        "additionalProperties": _CODE,
    },
    event_fields._is_rollout: {"type": "object", "additionalProperties": _NUMBER},
    event_fields._is_noise: _object(
        {"host": {"type": ["object", "null"], "additionalProperties": _FIGURE}}, additionalProperties=_FIGURE
    ),
    event_fields._is_turns: _object(
        {
            "start": {**_TEXT, "minLength": 1, "maxLength": event_fields._LONGEST_START},
            "rows": {
                "type": "array",
                "items": _TEXT,
                "minItems": 1,
                "maxItems": event_fields._MOST_ROWS,
                "uniqueItems": True,
            },
        },
        required=["start", "rows"],
    ),
    event_fields._is_asynchronous: _object(
        {
            "publication": _COUNT,
            "staleness": {"type": "object", "additionalProperties": _COUNT},
            "roles": {"type": "object", "minProperties": 1, "additionalProperties": _ROLE},
        },
        required=["publication", "staleness", "roles"],
    ),
}


def schema_of(is_right: Callable[[Any], bool]) -> Schema:
    """What a check takes. Raises KeyError for one that is not described here."""
    if is_right in WORDS:
        return {"enum": [*WORDS[is_right]]}
    if is_right in NULLABLE:
        return {"anyOf": [schema_of(NULLABLE[is_right]), {"type": "null"}]}
    return _OF[is_right]


def events_schema() -> Schema:
    """Of one line of ``events/*.jsonl``: what every event has, and by its kind what that has."""
    kinds = [(writer, name, kind) for writer, found in FIELDS.items() for name, kind in found.items()]
    return {
        **_object(
            {
                "kind": {"enum": sorted({name for _, name, _ in kinds})},
                "rank": {"type": ["integer", "null"], "minimum": 0, "description": "null: the driver"},
                "time": {"type": "number", "minimum": 0, "exclusiveMaximum": _LATEST, "description": "Unix seconds"},
                "seq": {"type": "integer", "minimum": 0, "description": "0, 1, 2 ... in each file"},
                **{name: {"anyOf": [schema_of(check[0]), {"type": "null"}]} for name, check in OPTIONAL},
                **{name: {"type": ["object", "null"]} for name in FREE},
            },
            required=["kind", "rank", "time", "seq"],
        ),
        "allOf": [_when(writer, name, kind) for writer, name, kind in kinds],
    }


def _when(writer: str, name: str, kind: Kind) -> Schema:
    rank = {"type": "null"} if writer == "driver" else {"type": "integer"}
    fields = {field: schema_of(check[0]) for field, check in kind.fields}
    wanted = _object(fields, required=[*fields])
    if "counts" in fields:
        told = _object({"source": {"const": TRAINER}}, required=["source"])
        plain = {field: schema for field, schema in fields.items() if field != "counts"}
        wanted = {
            **_object(plain, required=[*fields]),
            "if": told,
            "then": _object({"counts": _TOLD_COUNTS}),
            "else": _object({"counts": _OWN_COUNTS}),
        }
    return {"if": _object({"kind": {"const": name}, "rank": rank}, required=["kind", "rank"]), "then": wanted}
