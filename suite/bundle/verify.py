"""Derive a record again and say whether it is what the bundle holds."""

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from msgspec import structs
from pydantic import Field

from suite.bundle.consistency import findings
from suite.bundle.derive import StillRunning, derive
from suite.bundle.evidence import digest_if_any
from suite.bundle.findings import Finding
from suite.bundle.folder import Trace, folder_findings
from suite.bundle.parts import Part
from suite.bundle.record import RECORD_SCHEMA, Evidence, Record
from suite.bundle.store import Bundle, DamagedBundle, parse_record, written
from suite.spec.base import Frozen
from suite.spec.manifest import Manifest


def _optional_paths(kind: type[Part], prefix: str = "") -> Iterator[str]:
    """Paths of the fields, nested ones too, that have a default: those that came after records without them."""
    types = get_type_hints(kind)
    for field in structs.fields(kind):
        path, bare = f"{prefix}{field.encode_name}", types[field.name]
        if not field.required:
            yield path
        for inner in (bare, *get_args(bare)):
            if isinstance(inner, type) and issubclass(inner, Part):
                yield from _optional_paths(inner, f"{path}.")


#: Fields that a reader does without.
_LATER = frozenset(_optional_paths(Record))
MOST_DIFFERENCES = 50
#: Facts may have names as long as their file, above very many values.
_LONGEST_PATH = 300
_ABSENT = object()

Status = Literal["equal", "differs", "inconsistent", "damaged", "missing record"]


class Verification(Frozen):
    """What came of it. ``differences``: field paths with both values, or why there was nothing to compare.

    ``findings``: what does not fit together. ``digest``: of the evidence; null where there is none of it. ``trace``:
    what is asked of a run among others; null where nothing could be derived.
    """

    status: Status
    differences: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    digest: str | None = None
    trace: Trace | None = Field(default=None, exclude=True)


class Examined(NamedTuple):
    """A bundle read once: ``differences`` of the stored record from the derived one, null where none is stored."""

    manifest: Manifest
    record: Record
    differences: list[str] | None
    findings: tuple[Finding, ...]


def verify(bundle: Bundle) -> Verification:
    """Compare record.json with the record derived now, floats exactly: the same input, the same code.

    A record of another schema differs by that alone. Never raises for what a bundle holds.
    """
    try:
        found = examined(bundle)
    except StillRunning as error:
        return Verification(status="missing record", differences=(str(error),))
    except DamagedBundle as error:
        return Verification(status="damaged", differences=(str(error),), digest=digest_if_any(bundle))
    digest = found.record.evidence.digest if found.record.evidence else digest_if_any(bundle)
    result = verification(found.differences, digest, found.findings)
    return result.model_copy(update={"trace": Trace.of(bundle.path, found.record, digest)})


def verify_all(bundles: Sequence[Bundle], named: Collection[Path] = ()) -> list[tuple[Bundle, Verification]]:
    """As ``verify`` each, with what does not fit the others. ``named``: as for ``folder_findings``."""
    results = {bundle.path: verify(bundle) for bundle in bundles}
    traces = (result.trace for result in results.values() if result.trace is not None)
    for path, more in folder_findings(traces, frozenset(map(str, results)), named).items():
        alone = results[path]
        status = "inconsistent" if alone.status == "equal" else alone.status
        results[path] = alone.model_copy(update={"status": status, "findings": (*alone.findings, *more)})
    return [(bundle, results[bundle.path]) for bundle in bundles]


def verification(lines: list[str] | None, digest: str | None, found: tuple[Finding, ...] = ()) -> Verification:
    """By the differences of the stored record, null where none is stored."""
    status: Status = "differs" if lines else "inconsistent" if found else "equal"
    if lines is None:
        status, lines = "missing record", ["record.json is missing"]
    if len(lines) > MOST_DIFFERENCES:
        lines = [*lines[:MOST_DIFFERENCES], f"and {len(lines) - MOST_DIFFERENCES} more"]
    return Verification(status=status, differences=tuple(lines), findings=found, digest=digest)


def examined(bundle: Bundle, evidence: Evidence | None = None) -> Examined:
    """The record derived now, every difference of the stored one from it, and what does not fit together.

    A prediction, which a planner filled in after the derivation, is the stored one's, where there can be one.
    ``evidence``: the bundle's, where it was hashed already. Raises DamagedBundle and StillRunning.
    """
    manifest, stored_text = bundle.manifest(), bundle.record_text()
    events = bundle.events(manifest)
    derived = derive(bundle, manifest, events, evidence)
    found = findings(events, manifest, derived)
    text = "" if stored_text is None else written(derived)
    if stored_text is None or stored_text == text:  # as the driver wrote it: no field to compare
        return Examined(manifest, derived, None if stored_text is None else [], found)
    stored = parse_record(stored_text)
    if stored.get("schema") != RECORD_SCHEMA:
        line = f"schema: stored {_short(stored.get('schema'))}, this version derives {_short(RECORD_SCHEMA)}"
        return Examined(manifest, derived, [line], found)
    predicted = stored.get("predicted")
    if not isinstance(predicted, dict | None):
        raise DamagedBundle(f"record.json: predicted is {_short(predicted)}, must be an object or null")
    if predicted is not None and derived.run.device == "cuda" and derived.run.precision != "fp32":
        derived = structs.replace(derived, predicted=predicted)
        text = written(derived)
    return Examined(manifest, derived, list(differences(stored, json.loads(text))), found)


def differences(stored: Any, derived: Any, path: str = "") -> Iterator[str]:
    """Every leaf that differs, as ``path: stored X, derived Y``; ``absent`` where one side has no such field."""
    if isinstance(stored, dict) and isinstance(derived, dict):
        for key in [*derived, *(key for key in stored if key not in derived)]:
            inner = (f"{path}.{key}" if path else key)[:_LONGEST_PATH]
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
