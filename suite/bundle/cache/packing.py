"""What was derived, as bytes and back; what runs have in common is in memory once."""

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from suite.bundle.findings import Finding
from suite.bundle.parts import Part
from suite.bundle.record import Environment, Record
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest, Run

_HASH_CHARACTERS = 64
_NO_ENVIRONMENT = Environment(worker=None, driver=None)
#: Of a manifest's run.
_IN_RECORD = {"id", "plan", "repeat"}


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


class _Packed(msgspec.Struct, array_like=True, gc=False):
    """All but what is in the manifest. Facts of the environment are apart, each as a text, as most runs share them."""

    run: dict[str, Any]
    digest: str | None
    findings: tuple[Finding, ...]
    difference: str
    worker: dict[str, str] | None
    driver: dict[str, str] | None
    record: Record


def packed(derived: Derived) -> bytes:
    record, manifest = derived.record, derived.manifest
    worker, driver = map(_texts, (record.environment.worker, record.environment.driver))
    run = manifest.run.model_dump(mode="json", by_alias=True, exclude=_IN_RECORD)
    rest = replace(record, environment=_NO_ENVIRONMENT)
    made = _Packed(run, derived.digest, derived.findings, derived.difference, worker, driver, rest)
    return manifest.hash.encode() + msgspec.msgpack.encode(made, enc_hook=_left_out)


def _left_out(layout: Layout) -> None:
    """It is in the manifest."""


def _texts(facts: dict[str, Any] | None) -> dict[str, str] | None:
    return None if facts is None else {name: msgspec.json.encode(value).decode() for name, value in facts.items()}


def manifest_of(packed_bytes: bytes) -> str:
    """The hash of the manifest that ``unpacked`` needs."""
    return packed_bytes[:_HASH_CHARACTERS].decode()


class Unpacking:
    """Makes records of bytes; those of one report share their manifests and facts."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._parts: dict[tuple[str, str], Part] = {}
        self._environments: dict[tuple, Environment] = {}
        self._layout: Layout | None = None
        self._decoder = msgspec.msgpack.Decoder(_Packed, dec_hook=lambda kind, nothing: self._layout)

    def unpacked(self, packed_bytes: bytes, manifest: Manifest) -> Derived:
        """``manifest``: one of the hash that ``manifest_of`` tells. Raises ValueError for bytes that are not packed."""
        self._layout = manifest.layout
        body = self._decoder.decode(packed_bytes[_HASH_CHARACTERS:])
        record, run = body.record, body.record.run
        force_setattr(record, "environment", self._environment(body.worker, body.driver))
        self._share(manifest.hash, record, "counts")
        if record.memory is not None:
            self._share(manifest.hash, record.memory, "floor")
        repeat = Run.model_validate({"id": run.id, "plan": run.plan, "repeat": run.repeat, **body.run})
        # all repeats of a row have the other parts of its manifest in common
        own = manifest.model_copy(update={"run": repeat})
        return Derived(own, record, body.digest, body.findings, body.difference)

    def _environment(self, worker: dict[str, str] | None, driver: dict[str, str] | None) -> Environment:
        """The same one where all facts are the same."""
        key = tuple(None if texts is None else tuple(texts.items()) for texts in (worker, driver))
        if key not in self._environments:
            self._environments[key] = Environment(worker=self._facts(worker), driver=self._facts(driver))
        return self._environments[key]

    def _facts(self, texts: dict[str, str] | None) -> dict[str, Any] | None:
        if texts is None:
            return None
        for text in texts.values():
            if text not in self._values:
                self._values[text] = msgspec.json.decode(text)
        return {name: self._values[text] for name, text in texts.items()}

    def _share(self, manifest_hash: str, owner: Part, name: str) -> None:
        """Take the first of its manifest, where it is equal."""
        part = getattr(owner, name)
        first = self._parts.setdefault((manifest_hash, name), part)
        if first is not part and first == part:
            force_setattr(owner, name, first)
