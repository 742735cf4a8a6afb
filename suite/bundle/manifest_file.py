"""A manifest read without trust: unchanged since it was made, and of work that formulas can take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from suite.bundle.files import DamagedBundle, first_line, parse_object
from suite.spec.base import printable
from suite.spec.bounds import MOST, MOST_RANKS, first_beyond
from suite.spec.lengths import lengths_as_text
from suite.spec.manifest import MANIFEST_SCHEMA, Manifest, Run
from suite.spec.names import SAFE_ID
from suite.spec.resolve import layout_errors
from suite.spec.schema_files import not_read

#: Manifests that were read last, by all but their ``run``, in which alone repeats differ, and on which nothing depends.
_MOST_KNOWN, _LONGEST_KNOWN = 256, 1 << 16
_known: dict[str, Manifest] = {}
#: The same by their whole text: the same runs come again every night.
_same: dict[str, Manifest] = {}


def parse_manifest(text: str, name: str) -> Manifest:
    """The manifest that ``text`` holds; ``name`` is what messages call it. Raises DamagedBundle.

    Repeats of a manifest that was read before share all of its parts but ``run``.
    """
    manifest = _same.get(text)
    if manifest is None:
        manifest = _parsed(text, name)
        _remember(_same, text, manifest)
    return manifest


def _parsed(text: str, name: str) -> Manifest:
    body = parse_object(text, name)
    run = body.pop("run", None)
    try:
        rest, run_text = json.dumps(body), json.dumps(run)
    except RecursionError as error:
        raise DamagedBundle(f"{name} is nested too deeply") from error
    _check_numbers({"run": run}, name)
    manifest = _repeat_of(_known.get(rest), run_text) or _read(text, body, name)
    if not SAFE_ID.fullmatch(manifest.run.id):
        raise DamagedBundle(f"{name}: run.id {manifest.run.id[:80]!r} cannot be the name of a folder")
    if rest not in _known:
        _remember(_known, rest, manifest)
    return manifest


def _remember(known: dict[str, Manifest], text: str, manifest: Manifest) -> None:
    if len(text) <= _LONGEST_KNOWN:
        if len(known) >= _MOST_KNOWN:
            del known[next(iter(known))]
        known[text] = manifest


def _repeat_of(known: Manifest | None, run: str) -> Manifest | None:
    """With another ``run``; null where none is known, or it is not a run, which reading it whole tells better."""
    if known is None:
        return None
    try:
        return known.model_copy(update={"run": Run.model_validate_json(run)})
    except ValidationError:
        return None


def _read(text: str, body: Mapping[str, Any], name: str) -> Manifest:
    if "schema" in body and body["schema"] != MANIFEST_SCHEMA:
        raise DamagedBundle(not_read(name, body["schema"], MANIFEST_SCHEMA))
    _refuse_files(body, name)
    _check_numbers(body, name)
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise DamagedBundle(f"{name}: {first_line(error)}") from error
    except OverflowError as error:
        raise DamagedBundle(f"{name} holds a number too large to read") from error
    _check_content(manifest, name)
    return manifest


def _check_numbers(body: Mapping[str, Any], file: str) -> None:
    """Numbers beyond any machine, wherever they are, would overflow in formulas. Raises DamagedBundle."""
    beyond = first_beyond(body)
    if beyond is not None:
        raise DamagedBundle(f"{file}: {printable('.'.join(beyond))[:200]} is larger than {MOST}")


def _refuse_files(body: Mapping[str, Any], file: str) -> None:
    """A bundle must not have files of the machine read that it lies on. Raises DamagedBundle."""
    name = lengths_as_text(body)
    if name is not None:
        raise DamagedBundle(f"{file}: workload.{name} is text, must be an object")


def _check_content(manifest: Manifest, file: str) -> None:
    """A layout that does not divide has no floor, and ranks beyond any cluster would keep the reader busy.

    Raises DamagedBundle.
    """
    if manifest.layout.ranks > MOST_RANKS:
        raise DamagedBundle(f"{file}: {manifest.layout.ranks} ranks are more than the {MOST_RANKS} that are read")
    _check_lengths(manifest, file)
    errors = layout_errors(manifest.size, manifest.workload, manifest.layout)
    if errors:
        raise DamagedBundle(f"{file}: {errors[0]}")
    if not _work_follows(manifest):
        raise DamagedBundle(f"{file}: work is not what workload and layout give")


def _check_lengths(manifest: Manifest, file: str) -> None:
    """No sample is longer than the workload's longest. Raises DamagedBundle."""
    drawn, workload = manifest.work.lengths, manifest.workload
    if drawn is None:
        return
    for lengths, most in ((drawn.prompt, workload.prompt_tokens), (drawn.response, workload.new_tokens)):
        if max(lengths, default=0) > most:
            raise DamagedBundle(f"{file}: work.lengths has a sample beyond the workload's longest, {most} tokens")


def _work_follows(manifest: Manifest) -> bool:
    work, workload, layout = manifest.work, manifest.workload, manifest.layout
    return (
        work.global_rollouts == workload.global_rollouts(layout.ranks)
        and work.replica_rollouts * layout.data == work.global_rollouts
        and work.replica_batch * workload.optimizer_steps == work.replica_rollouts
        and work.micro_batch <= workload.micro_batch
        and work.replica_batch % work.micro_batch == 0
    )
