"""One bundle read and derived, as it is put into the table of runs; perhaps in a process of its own."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from suite.bundle.cache.packing import Derived, packed
from suite.bundle.cache.survey import Surveyed, signature_of
from suite.bundle.evidence import read_once
from suite.bundle.files import DamagedBundle
from suite.bundle.record import Evidence
from suite.bundle.store import Bundle, StillRunning
from suite.bundle.verify import Examined, examined
from suite.bundle.walk import RECORD


@dataclass(frozen=True, slots=True)
class Read:
    """A bundle that was read. ``state``: of its files; empty, as ``content`` is, where nothing is to be kept."""

    state: bytes
    content: bytes
    body: bytes
    manifest: bytes
    view: bytes


def read(
    bundle: Surveyed,
    code: bytes,
    make: Callable[[Derived], bytes] | None,
    known: Callable[[bytes], Derived | None] = lambda content: None,
) -> Read | StillRunning | DamagedBundle:
    """``make``: of a view; ``known``: what was derived from the same content before."""
    folder, before = Bundle(Path(bundle.path)), bundle.signature
    try:
        if bundle.has_lock and folder.running():
            raise StillRunning(f"run {folder.id} is still going on; its record is derived when it ends")
        evidence, held = _evidence(folder)
        record = folder.record_text()
        if record is not None:
            held = Bundle(folder.path, {**held.held, RECORD: record.encode()})
        content = b"" if evidence is None or before is None else _content(held.id, evidence, record, code)
        derived = (known(content) if content else None) or _derived(examined(held, evidence), evidence)
        text = held.manifest_text()
    except (StillRunning, DamagedBundle) as error:
        return error
    state = b""
    if before is not None and before.is_settled and signature_of(bundle.path) == before:  # nobody wrote meanwhile
        state = before.value + code
    return Read(state, content, packed(derived), text.encode(), b"" if make is None else make(derived))


def _evidence(folder: Bundle) -> tuple[Evidence | None, Bundle]:
    """Null where there are files that are no evidence; whether the bundle is damaged by them, its derivation says."""
    try:
        return read_once(folder)
    except DamagedBundle:
        return None, folder


def _content(name: str, evidence: Evidence, record: str | None, code: bytes) -> bytes:
    """Of all that a bundle gives, the difference of its record.json among it."""
    of_record = b"" if record is None else hashlib.sha256(record.encode()).digest()
    facts = (code, evidence.digest.encode(), b"%d" % evidence.files, of_record, os.fsencode(name))
    return hashlib.sha256(b"\n".join(facts)).digest()


def _derived(found: Examined, evidence: Evidence | None) -> Derived:
    difference = ""
    if found.differences:
        more = f" and {len(found.differences) - 1} more" if len(found.differences) > 1 else ""
        difference = f"{found.differences[0]}{more}"
    digest = None if evidence is None else evidence.digest
    return Derived(found.manifest, found.record, digest, found.findings, difference)
