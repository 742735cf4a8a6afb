"""Derive a record again and say whether it is what the bundle holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, get_args

from pydantic import BaseModel

from suite.bundle.derive import StillRunning, derive
from suite.bundle.record import RECORD_SCHEMA, Evidence, Record
from suite.bundle.store import Bundle, DamagedBundle, parse_record, written
from suite.spec.base import Frozen
from suite.spec.manifest import Manifest


def _optional_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Paths of the fields, nested ones too, that have a default: those that came after records without them."""
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        if not field.is_required():
            yield path
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                yield from _optional_paths(inner, f"{path}.")


#: Fields that a reader does without.
_LATER = frozenset(_optional_paths(Record))
_MOST_DIFFERENCES = 50
_ABSENT = object()


class Verification(Frozen):
    """What came of it. ``differences``: field paths with both values, or why there was nothing to compare."""

    status: Literal["equal", "differs", "damaged", "missing record"]
    differences: tuple[str, ...]


def verify(bundle: Bundle) -> Verification:
    """Compare record.json with the record derived now, floats exactly: the same input, the same code.

    A record of another schema differs by that alone. Never raises for what a bundle holds.
    """
    try:
        _, lines = rederived(bundle)
    except StillRunning as error:
        return Verification(status="missing record", differences=(str(error),))
    except DamagedBundle as error:
        return Verification(status="damaged", differences=(str(error),))
    if lines is None:
        return Verification(status="missing record", differences=("record.json is missing",))
    if len(lines) > _MOST_DIFFERENCES:
        lines[_MOST_DIFFERENCES:] = [f"and {len(lines) - _MOST_DIFFERENCES} more"]
    return Verification(status="differs" if lines else "equal", differences=tuple(lines))


def rederived(
    bundle: Bundle, manifest: Manifest | None = None, evidence: Evidence | None = None
) -> tuple[Record, list[str] | None]:
    """The record derived now, and every difference of the stored one from it; null where none is stored.

    A prediction, which a planner filled in after the derivation, is the stored one's, where there can be one.
    ``manifest`` and ``evidence``: the bundle's, where they were read already. Raises DamagedBundle and StillRunning.
    """
    text = bundle.record_text()
    derived = derive(bundle, manifest, evidence)
    if text is None:
        return derived, None
    if text == written(derived):  # as the driver wrote it: nothing to read, and thousands of fields not to compare
        return derived, []
    stored = parse_record(text)
    if stored.get("schema") != RECORD_SCHEMA:
        line = f"schema: stored {_short(stored.get('schema'))}, this version derives {_short(RECORD_SCHEMA)}"
        return derived, [line]
    predicted = stored.get("predicted")
    if not isinstance(predicted, dict | None):
        raise DamagedBundle(f"record.json: predicted is {_short(predicted)}, must be an object or null")
    if derived.run.device == "cuda" and derived.run.precision != "fp32":
        derived = derived.model_copy(update={"predicted": predicted})
    return derived, list(differences(stored, as_json(derived)))


def as_json(record: Record) -> dict[str, Any]:
    """The record as a reader of its file would see it."""
    parsed: dict[str, Any] = json.loads(record.model_dump_json(by_alias=True))
    return parsed


def differences(stored: Any, derived: Any, path: str = "") -> Iterator[str]:
    """Every leaf that differs, as ``path: stored X, derived Y``; ``absent`` where one side has no such field."""
    if isinstance(stored, dict) and isinstance(derived, dict):
        for key in [*derived, *(key for key in stored if key not in derived)]:
            inner = f"{path}.{key}" if path else key
            yield from differences(stored.get(key, _ABSENT), derived.get(key, _ABSENT), inner)
    elif isinstance(stored, list) and isinstance(derived, list) and len(stored) == len(derived):
        for index, (left, right) in enumerate(zip(stored, derived, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif stored is _ABSENT and derived is None and path in _LATER:
        return  # an older version stored it, before there was such a field, and nothing is known of it
    elif type(stored) is not type(derived) or stored != derived:
        yield f"{path}: stored {_short(stored)}, derived {_short(derived)}"


def _short(value: Any) -> str:
    if value is _ABSENT:
        return "absent"
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
