"""What was derived, as bytes and back; what runs have in common is in memory once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from suite.bundle.findings import Finding
from suite.bundle.record import Environment, Record
from suite.spec.manifest import Manifest, Run

_Model = TypeVar("_Model", bound=BaseModel)
_NO_ENVIRONMENT = Environment(worker=None, driver=None)
#: Shorter texts are shared by pydantic.
_LONG_TEXT = 64
_LENGTH_BYTES = 4


@dataclass(frozen=True, slots=True)
class Derived:
    """What the evidence of a bundle gives.

    ``digest``: of the evidence (``suite.bundle.evidence``), null where there is none of it. ``findings``: what does not
    fit together within it. ``difference``: of record.json from the record, in words; empty where there is none, or no
    record.json.
    """

    manifest: Manifest
    record: Record
    digest: str | None
    findings: tuple[Finding, ...]
    difference: str


def packed(derived: Derived) -> bytes:
    """All but what is in the manifest. Facts of the environment are apart, each as a text, as most runs share them."""
    record = derived.record
    facts = {
        "manifest": derived.manifest.hash,
        "digest": derived.digest,
        "findings": [[finding.name, finding.text] for finding in derived.findings],
        "difference": derived.difference,
        "worker": _texts(record.environment.worker),
        "driver": _texts(record.environment.driver),
    }
    head = json.dumps(facts).encode()
    body = record.model_copy(update={"environment": _NO_ENVIRONMENT}).model_dump_json(by_alias=True).encode()
    return len(head).to_bytes(_LENGTH_BYTES, "big") + head + body


def manifest_of(packed_bytes: bytes) -> str:
    """The hash of the manifest that ``unpacked`` needs."""
    found: str = _head(packed_bytes)["manifest"]
    return found


class Unpacking:
    """Makes records of bytes; those of one report share their manifests, facts and texts."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._texts: dict[str, str] = {}
        self._models: dict[tuple, BaseModel] = {}

    def unpacked(self, packed_bytes: bytes, manifest: Manifest) -> Derived:
        """``manifest``: one of the hash that ``manifest_of`` tells. Raises ValueError for anything but packed bytes."""
        head = _head(packed_bytes)
        body = packed_bytes[_LENGTH_BYTES + int.from_bytes(packed_bytes[:_LENGTH_BYTES], "big") :]
        record = Record.model_validate_json(body)
        self._make_lean(record)
        run, fields = vars(record.run), vars(record)
        run["layout"] = manifest.layout
        fields["environment"] = Environment.model_construct(
            _every_field(Environment), worker=self._facts(head["worker"]), driver=self._facts(head["driver"])
        )
        fields["counts"] = self._shared((manifest.hash, "counts"), record.counts)
        if record.memory is not None:
            vars(record.memory)["floor"] = self._shared((manifest.hash, "floor"), record.memory.floor)
        return Derived(
            manifest=self._manifest(manifest, record),
            record=record,
            digest=head["digest"],
            findings=tuple(Finding(name=name, text=text) for name, text in head["findings"]),
            difference=head["difference"],
        )

    def _manifest(self, manifest: Manifest, record: Record) -> Manifest:
        """The manifest of this very run; all of its repeats have the other parts in common."""
        run = Run.model_construct(_every_field(Run), id=record.run.id, plan=record.run.plan, repeat=record.run.repeat)
        return _lean(manifest.model_copy(update={"run": run}))

    def _facts(self, texts: dict[str, str] | None) -> dict[str, Any] | None:
        if texts is None:
            return None
        values, facts = self._values, {}
        for name, text in texts.items():
            if text not in values:
                values[text] = json.loads(text)
            facts[name] = values[text]
        return facts

    def _shared(self, key: tuple, model: BaseModel | None) -> BaseModel | None:
        """The first of its key, where it is equal."""
        if model is None:
            return None
        first = self._models.setdefault(key, model)
        return first if first == model else model

    def _make_lean(self, model: BaseModel) -> None:
        """It and all models within."""
        fields, texts = vars(_lean(model)), self._texts
        for name, value in fields.items():
            if isinstance(value, BaseModel):
                self._make_lean(value)
            elif type(value) is str:
                if len(value) >= _LONG_TEXT:
                    fields[name] = texts.setdefault(value, value)
            elif type(value) is dict:
                for part in value.values():
                    if isinstance(part, BaseModel):
                        self._make_lean(part)


def _lean(model: _Model) -> _Model:
    """All models of a type have one set of the names of their fields; one for each takes more than the fields do."""
    object.__setattr__(model, "__pydantic_fields_set__", _every_field(type(model)))
    return model


@cache
def _every_field(model: type[BaseModel]) -> set[str]:
    return set(model.model_fields)


def _texts(facts: dict[str, Any] | None) -> dict[str, str] | None:
    return None if facts is None else {name: json.dumps(value) for name, value in facts.items()}


def _head(packed_bytes: bytes) -> dict[str, Any]:
    length = int.from_bytes(packed_bytes[:_LENGTH_BYTES], "big")
    head: dict[str, Any] = json.loads(packed_bytes[_LENGTH_BYTES : _LENGTH_BYTES + length])
    return head
