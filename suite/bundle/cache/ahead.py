"""Many bundles that nobody derived before, derived on all cores before they are asked for one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from suite.bundle.cache.cores import on_all_cores, worth_it
from suite.bundle.cache.packing import Derived, packed
from suite.bundle.cache.signature import signature_of
from suite.bundle.derive import StillRunning
from suite.bundle.evidence import read_once
from suite.bundle.files import DamagedBundle
from suite.bundle.record import Evidence
from suite.bundle.store import Bundle
from suite.bundle.verify import Examined, examined

#: Of a kind of text what it says of a run (``DerivedRecords.text_of``).
Texts = Mapping[bytes, Callable[[Derived], bytes]]


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is kept of one bundle: ``signature`` of its files, by which it is found again, and ``texts`` by kind."""

    bundle: Bundle
    evidence: Evidence
    signature: bytes
    body: bytes
    manifest: bytes
    texts: dict[bytes, bytes]


def derived_of(found: Examined, evidence: Evidence | None) -> Derived:
    """As it is packed."""
    difference = ""
    if found.differences:
        more = f" and {len(found.differences) - 1} more" if len(found.differences) > 1 else ""
        difference = f"{found.differences[0]}{more}"
    digest = None if evidence is None else evidence.digest
    return Derived(found.manifest, found.record, digest, found.findings, difference)


def derive_ahead(bundles: Sequence[Bundle], texts: Texts) -> Iterator[Ahead | None]:
    """In the order of the bundles; null for one that is damaged, being run, or was written to meanwhile: whoever asks
    for it is told why. Nothing where there are few, or one core."""
    if worth_it(len(bundles)):
        yield from on_all_cores(partial(_one, texts=dict(texts)), bundles)


def _one(bundle: Bundle, texts: Texts) -> Ahead | None:
    """In a process of its own."""
    folder = os.path.abspath(bundle.path)
    before = signature_of(folder)
    if before is None or not before.is_settled or bundle.running():
        return None
    try:
        evidence, held = read_once(bundle)
        derived = derived_of(examined(held, evidence), evidence)
    except (StillRunning, DamagedBundle):
        return None
    made = Ahead(
        bundle,
        evidence,
        before.value,
        packed(derived),
        derived.manifest.model_dump_json(by_alias=True).encode(),
        {kind: make(derived) for kind, make in texts.items()},
    )
    return made if signature_of(folder) == before else None
