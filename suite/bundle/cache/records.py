"""The record of a bundle, always derived from its evidence: now, or before from the same evidence by the same code."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from types import TracebackType

from suite.bundle.cache.ahead import Ahead, Texts, derive_ahead, derived_of
from suite.bundle.cache.code import code_key
from suite.bundle.cache.cores import worth_it
from suite.bundle.cache.database import Database
from suite.bundle.cache.packing import Derived, Unpacking, manifest_of, packed
from suite.bundle.cache.place import cache_folder
from suite.bundle.cache.signature import signature_of
from suite.bundle.derive import StillRunning
from suite.bundle.evidence import evidence_of
from suite.bundle.files import DamagedBundle
from suite.bundle.manifest_file import parse_manifest
from suite.bundle.record import Evidence
from suite.bundle.store import Bundle
from suite.bundle.verify import examined
from suite.spec.manifest import Manifest

__all__ = ["Derived", "DerivedRecords"]

#: So many new records are written together.
_BATCH = 500
_SIGNATURE_BYTES = 16


class DerivedRecords:
    """Use as a context manager: what was derived within it is kept at its end.

    A bundle whose files are untouched, by what the file system says of them (``signature.py``), is not read again. Of
    any other the evidence is hashed, and what was derived from evidence of that digest before is taken; else it is
    derived.
    """

    def __init__(self) -> None:
        self._database = Database(cache_folder())
        self._code = code_key() if self._database.is_open else b""
        self._manifests: dict[str, Manifest] = {}
        self._unpacking = Unpacking()
        self._here, self._new = os.getcwd(), 0

    def __enter__(self) -> "DerivedRecords":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()

    def ahead(self, bundles: Sequence[Bundle], texts: Texts, done: Callable[[int], None] | None = None) -> None:
        """Derive those of which nothing is known, on all cores, where they are many; asking for them is then quick.

        ``bundles``: such as can be found again, so none of an archive. ``texts``: what ``text_of`` will be asked for.
        ``done`` is called with how many were derived.
        """
        if not self._database.is_open or not worth_it(len(bundles)):
            return
        new = [bundle for bundle in bundles if self._database.get(self._place(self._folder(bundle))) is None]
        self._database.flush()  # whoever keeps records now may not write while this one reads
        for count, one in enumerate(derive_ahead(new, texts), start=1):
            if one is not None:
                self._keep_ahead(one)
            if done is not None:
                done(count)

    def _keep_ahead(self, one: Ahead) -> None:
        name = self._name(one.bundle, one.evidence)
        self._database.put(b"record " + name, one.body)
        self._database.put(b"manifest " + manifest_of(one.body).encode(), one.manifest)
        for kind, text in one.texts.items():
            self._database.put(kind + name, text)
        self._database.put(self._place(self._folder(one.bundle)), one.signature + name)
        self._new += 1
        self._flush_many()

    def of(self, bundle: Bundle, is_alone: bool = False) -> Derived:
        """What the bundle's evidence gives. ``is_alone``: nobody else can change its files, which lie where they are
        for this once. Raises DamagedBundle, and StillRunning while a driver holds the run.
        """
        _refuse_running(bundle)
        if not self._database.is_open:
            return self._derived(bundle, _evidence(bundle))[0]
        folder = self._folder(bundle)
        place, before = self._place(folder), signature_of(folder)
        seen = self._database.get(place) if before else None
        if seen is not None and before is not None and seen[:_SIGNATURE_BYTES] == before.value:
            known = self._known(seen[_SIGNATURE_BYTES:])
            if known is not None:
                return known
        evidence = _evidence(bundle)
        if before is None or evidence is None:
            return self._derived(bundle, evidence)[0]
        name = self._name(bundle, evidence)
        known, body = self._known(name), None
        if known is None:
            known, body = self._derived(bundle, evidence)
        if is_alone:
            self._keep(None, b"", name, body)
        elif before.is_settled and signature_of(folder) == before:  # nobody wrote while it was read
            self._keep(place, before.value + name, name, body)
        return known

    def text_of(self, bundle: Bundle, kind: bytes, make: Callable[[Derived], bytes], is_alone: bool = False) -> bytes:
        """What ``make`` says of what ``of`` gives, kept under ``kind`` for as long as that is, and then not made again.

        ``is_alone`` and what is raised as of ``of``.
        """
        _refuse_running(bundle)
        name = self._untouched(bundle)
        kept = None if name is None else self._database.get(kind + name)
        if kept is not None:
            return kept
        text = make(self.of(bundle, is_alone))
        name = self._untouched(bundle)
        if name is not None:
            self._database.put(kind + name, text)
        return text

    def _untouched(self, bundle: Bundle) -> bytes | None:
        """The name under which is kept what the bundle gives; null where that is not known without reading it."""
        if not self._database.is_open:
            return None
        folder = self._folder(bundle)
        seen = self._database.get(self._place(folder))
        now = None if seen is None else signature_of(folder)
        if seen is None or now is None or seen[:_SIGNATURE_BYTES] != now.value:
            return None
        return seen[_SIGNATURE_BYTES:]

    def _folder(self, bundle: Bundle) -> str:
        return os.path.join(self._here, bundle.path)

    def _place(self, folder: str) -> bytes:
        return b"folder %s %s" % (self._code, os.fsencode(folder))

    def _name(self, bundle: Bundle, evidence: Evidence) -> bytes:
        """Under which everything is kept that the bundle gives, the difference of its record.json among it."""
        text = bundle.record_text()
        record = b"" if text is None else hashlib.sha256(text.encode()).digest()
        facts = (self._code, evidence.digest.encode(), b"%d" % evidence.files, record, os.fsencode(bundle.id))
        return hashlib.sha256(b"\n".join(facts)).digest()

    def _known(self, name: bytes) -> Derived | None:
        """What was kept; null where it was not, or not whole."""
        body = self._database.get(b"record " + name)
        if body is None:
            return None
        try:
            manifest = self._manifest(manifest_of(body))
            return None if manifest is None else self._unpacking.unpacked(body, manifest)
        except (ValueError, KeyError, TypeError, AttributeError, DamagedBundle):  # its check holds, but not its content
            return None

    def _manifest(self, hash_: str) -> Manifest | None:
        if hash_ not in self._manifests:
            text = self._database.get(b"manifest " + hash_.encode())
            if text is None:
                return None
            manifest = parse_manifest(text.decode(), "a kept manifest")
            if manifest.hash != hash_:
                return None
            self._manifests[hash_] = manifest
        return self._manifests[hash_]

    def _derived(self, bundle: Bundle, evidence: Evidence | None) -> tuple[Derived, bytes]:
        """Now, and as it is kept; raises DamagedBundle."""
        derived = derived_of(examined(bundle, evidence), evidence)
        body = packed(derived)
        manifest = self._manifests.setdefault(derived.manifest.hash, derived.manifest)
        return self._unpacking.unpacked(body, manifest), body

    def _keep(self, place: bytes | None, seen: bytes, name: bytes, body: bytes | None) -> None:
        if body is not None:
            manifest = self._manifests[manifest_of(body)]
            self._database.put(b"record " + name, body)
            self._database.put(b"manifest " + manifest.hash.encode(), manifest.model_dump_json(by_alias=True).encode())
            self._new += 1
        if place is not None:
            self._database.put(place, seen)
        self._flush_many()

    def _flush_many(self) -> None:
        """Many are written together."""
        if self._new >= _BATCH:
            self._database.flush()
            self._new = 0


def _refuse_running(bundle: Bundle) -> None:
    if bundle.running():
        raise StillRunning(f"run {bundle.id} is still going on; its record is derived when it ends")


def _evidence(bundle: Bundle) -> Evidence | None:
    """Null where there are files that are no evidence; whether the bundle is damaged by them, its derivation says."""
    try:
        return evidence_of(bundle)
    except DamagedBundle:
        return None
