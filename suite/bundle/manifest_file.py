"""A manifest read without trust: unchanged since it was made, and of work that formulas can take. What follows from it
alone is computed once for all of its repeats."""

import json
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from suite.bundle.files import DamagedBundle, first_line, parse_object
from suite.spec.base import printable
from suite.spec.manifest import MANIFEST_SCHEMA, Manifest, Run
from suite.spec.names import SAFE_ID
from suite.spec.resolve import layout_errors
from suite.spec.schema_files import not_read
from suite.spec.typed import MOST, MOST_RANKS, first_beyond

#: Manifests that were read last, by their hashes, each with what it was read from but ``run``: in it repeats differ.
_MOST_KNOWN, _LONGEST_KNOWN = 256, 1 << 16
_known: dict[str, tuple[dict[str, Any], Manifest]] = {}
_MOST_MADE = 1024
_Make = TypeVar("_Make", bound=Callable[..., Any])


def parse_manifest(text: str, name: str) -> Manifest:
    """The manifest that ``text`` holds; ``name`` is what messages call it. Raises DamagedBundle.

    Repeats of a manifest that was read before share all of its parts but ``run``.
    """
    body = parse_object(text, name)
    manifest = _repeat(body)
    if manifest is None:
        manifest = _read(text, body, name)
        if len(text) <= _LONGEST_KNOWN:
            if len(_known) >= _MOST_KNOWN:
                del _known[next(iter(_known))]
            _known[manifest.hash] = ({**body, "run": None}, manifest)
    if not SAFE_ID.fullmatch(manifest.run.id):
        raise DamagedBundle(f"{name}: run.id {manifest.run.id[:80]!r} cannot be the name of a folder")
    return manifest


def _repeat(body: Mapping[str, Any]) -> Manifest | None:
    """Null where no manifest is known that differs in ``run`` alone, or it is none, which reading it whole tells."""
    rest, known = _known.get(str(body.get("hash")), ({}, None))
    if known is None or {**body, "run": None} != rest or first_beyond(body.get("run")) is not None:
        return None
    try:  # from text, as the whole is read: only that refuses half a character
        return known.model_copy(update={"run": Run.model_validate_json(json.dumps(body.get("run")))})
    except ValidationError:
        return None


def _read(text: str, body: Mapping[str, Any], name: str) -> Manifest:
    if "schema" in body and body["schema"] != MANIFEST_SCHEMA:
        raise DamagedBundle(not_read(name, body["schema"], MANIFEST_SCHEMA))
    beyond = first_beyond(body)
    if beyond is not None:  # beyond any machine, it would overflow in formulas
        raise DamagedBundle(f"{name}: {printable('.'.join(beyond))[:200]} is larger than {MOST}")
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise DamagedBundle(f"{name}: {first_line(error)}") from error
    except OverflowError as error:
        raise DamagedBundle(f"{name} holds a number too large to read") from error
    _check_content(manifest, name)
    return manifest


def _check_content(manifest: Manifest, file: str) -> None:
    """A layout that does not divide has no floor, ranks beyond any cluster would keep the reader busy, and no sample is
    longer than the workload's longest. Raises DamagedBundle."""
    if manifest.layout.ranks > MOST_RANKS:
        raise DamagedBundle(f"{file}: {manifest.layout.ranks} ranks are more than the {MOST_RANKS} that are read")
    drawn, workload = manifest.work.lengths, manifest.workload
    most = () if drawn is None else ((drawn.prompt, workload.prompt_tokens), (drawn.response, workload.new_tokens))
    for lengths, longest in most:
        if max(lengths, default=0) > longest:
            raise DamagedBundle(f"{file}: work.lengths has a sample beyond the workload's longest, {longest} tokens")
    errors = layout_errors(manifest.size, manifest.workload, manifest.layout)
    if errors:
        raise DamagedBundle(f"{file}: {errors[0]}")
    if not _work_follows(manifest):
        raise DamagedBundle(f"{file}: work is not what workload and layout give")


def _work_follows(manifest: Manifest) -> bool:
    work, workload, layout = manifest.work, manifest.workload, manifest.layout
    return (
        work.global_rollouts == workload.global_rollouts(layout.ranks)
        and work.replica_rollouts * layout.data == work.global_rollouts
        and work.replica_batch * workload.optimizer_steps == work.replica_rollouts
        and work.micro_batch <= workload.micro_batch
        and work.replica_batch % work.micro_batch == 0
    )


def once_per_manifest(make: _Make) -> _Make:
    """For a function of a manifest and of values that can be keys, which does not look at the manifest's ``run``.

    The hash of a manifest covers the rest. What is made must not be changed by whoever gets it.
    """
    known: dict[tuple, Any] = {}

    @wraps(make)
    def made(manifest: Manifest, *rest: Any) -> Any:
        key = (manifest.hash, *rest)
        if key not in known:
            if len(known) >= _MOST_MADE:
                del known[next(iter(known))]
            known[key] = make(manifest, *rest)
        return known[key]

    return cast(_Make, made)
