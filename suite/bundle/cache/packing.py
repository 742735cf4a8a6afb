"""What was derived, as bytes and back; what runs have in common is in memory once.

Models are made of the JSON that this very code dumped before as validation would give them, in a tenth of the time:
nothing is checked but that no required field is missing. Whoever gives the JSON answers for its being what was written.
"""

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from suite.bundle.findings import Finding
from suite.bundle.record import Counts, Environment, Floor, Memory, Record, RunFacts
from suite.spec.manifest import Manifest, Run

Make = Callable[[Any], Any]
#: What a frozen model has, set without a look at its name.
_set_fields, _set_names, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__
    for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


@cache
def maker(model: type[BaseModel], given: tuple[str, ...] = ()) -> Make:
    """From a parsed object to a model of that type, with all models within.

    ``given``: fields whose values are taken as they are. What is made takes the object's place: nobody else may have
    it. Raises KeyError where a required field is missing, AttributeError and TypeError for what is no object.
    """
    every, new = set(model.model_fields), model.__new__
    plan = [
        (name, field.alias or name, None if name in given else _converter(field.annotation), field)
        for name, field in model.model_fields.items()
    ]
    keys = [(name, key, field.is_required(), field.default) for name, key, _, field in plan]
    plain = all(name == key for name, key, *_ in keys)
    converted = [(name, convert) for name, _, convert, _ in plan if convert is not None]

    def in_order(body: dict[str, Any]) -> dict[str, Any]:
        """With the defaults of fields that were left out, as dumps of some models do."""
        return {name: body[key] if key in body or is_required else default for name, key, is_required, default in keys}

    def make(body: dict[str, Any]) -> Any:
        fields = body if plain and body.keys() == every else in_order(body)
        for name, convert in converted:
            value = fields[name]
            if value is not None:
                fields[name] = convert(value)
        made = new(model)
        _set_fields(made, fields)
        _set_names(made, every)  # one set for all models of a type: each its own takes more than the fields
        _set_extra(made, None)
        _set_private(made, None)
        return made

    return make


def _converter(annotation: Any) -> Make | None:
    """Null where parsed JSON is the value already."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return maker(annotation)
    if origin is Annotated:
        return _converter(arguments[0])
    if origin in (Union, types.UnionType):
        found = [made for made in map(_converter, arguments) if made is not None]
        assert len(found) <= 1, f"{annotation} can be read in two ways"
        return found[0] if found else None
    if origin is tuple:
        assert arguments[1:] == (...,), f"{annotation} is no tuple of any length"
        part = _converter(arguments[0])
        return tuple if part is None else lambda values: tuple(map(part, values))
    if origin is dict:
        each = _converter(arguments[1])
        return None if each is None else lambda body: {name: each(value) for name, value in body.items()}
    return None


#: What is in the manifest, in the head, or made once for many.
_LEFT_OUT: dict[str, Any] = {"run": {"layout"}, "environment": True}
#: Of a manifest's run.
_IN_RECORD = {"id", "plan", "repeat"}
_HASH_CHARACTERS = 64
#: Long texts that most runs have in common.
_COMMON_TEXTS = (("throughput", "convention"), ("compute", "convention"), ("steady_state", "test"))
_make_run, _make_memory = maker(RunFacts, ("layout",)), maker(Memory, ("floor",))
_make_counts, _make_floor, _make_environment = maker(Counts), maker(Floor), maker(Environment)
_make_record = maker(Record, ("run", "counts", "memory", "environment"))
_make_repeat = maker(Run)


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
    head = {
        "run": derived.manifest.run.model_dump(mode="json", by_alias=True, exclude=_IN_RECORD),
        "digest": derived.digest,
        "findings": [[finding.name, finding.text] for finding in derived.findings],
        "difference": derived.difference,
        "worker": _texts(record.environment.worker),
        "driver": _texts(record.environment.driver),
    }
    body = record.model_dump_json(by_alias=True, exclude=_LEFT_OUT)
    return f'{derived.manifest.hash}{to_json(head).decode()[:-1]},"record":{body}}}'.encode()


def manifest_of(packed_bytes: bytes) -> str:
    """The hash of the manifest that ``unpacked`` needs."""
    return packed_bytes[:_HASH_CHARACTERS].decode()


class Unpacking:
    """Makes records of bytes; those of one report share their manifests, facts and texts."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._models: dict[tuple, BaseModel] = {}
        self._environments: dict[tuple, Environment] = {}

    def unpacked(self, packed_bytes: bytes, manifest: Manifest) -> Derived:
        """``manifest``: one of the hash that ``manifest_of`` tells.

        Raises ValueError, KeyError, TypeError or AttributeError for bytes that are not packed ones. That they are those
        that were packed is seen by their check (``database.py``), so they are not validated again.
        """
        head = from_json(packed_bytes[_HASH_CHARACTERS:], allow_inf_nan=False)
        body: dict[str, Any] = head["record"]
        known, counts, memory = body["run"], body["counts"], body["memory"]
        run = _make_run({name: manifest.layout if name == "layout" else known[name] for name in RunFacts.model_fields})
        if memory is not None:
            memory["floor"] = self._shared((manifest.hash, "floor"), memory["floor"], _make_floor)
            body["memory"] = _make_memory(memory)
        body["counts"] = self._shared((manifest.hash, "counts"), counts, _make_counts)
        body["environment"] = self._environment(head["worker"], head["driver"])
        for part, name in _COMMON_TEXTS:
            texts = body[part]
            if texts is not None:
                texts[name] = sys.intern(texts[name])
        body["run"] = run
        return Derived(
            manifest=self._manifest(manifest, run, head["run"]),
            record=_make_record(body),
            digest=head["digest"],
            findings=tuple(Finding(name=name, text=text) for name, text in head["findings"]),
            difference=head["difference"],
        )

    def _manifest(self, manifest: Manifest, run: RunFacts, rest: dict[str, Any]) -> Manifest:
        """The manifest of this very run; all of its repeats have the other parts in common."""
        repeat = _make_repeat({"id": run.id, "plan": run.plan, "repeat": run.repeat, **rest})
        return manifest.model_copy(update={"run": repeat})

    def _environment(self, worker: dict[str, str] | None, driver: dict[str, str] | None) -> Environment:
        """The same one where all facts are the same."""
        key = tuple(None if texts is None else tuple(texts.items()) for texts in (worker, driver))
        if key not in self._environments:
            self._environments[key] = _make_environment({"worker": self._facts(worker), "driver": self._facts(driver)})
        return self._environments[key]

    def _facts(self, texts: dict[str, str] | None) -> dict[str, Any] | None:
        if texts is None:
            return None
        values, facts = self._values, {}
        for name, text in texts.items():
            if text not in values:
                values[text] = from_json(text)
            facts[name] = values[text]
        return facts

    def _shared(self, key: tuple, body: dict[str, Any] | None, make: Make) -> Any:
        """The first of its key, where it is equal."""
        if body is None:
            return None
        first = self._models.get(key)
        if first is None:
            first = self._models[key] = make(body)
        return first if vars(first) == body else make(body)


def _texts(facts: dict[str, Any] | None) -> dict[str, str] | None:
    return None if facts is None else {name: to_json(value).decode() for name, value in facts.items()}
