"""The table of runs: what each bundle gives, always derived from its evidence, now or before by the same code.

A bundle whose files are untouched, by what the file system says of them (``survey.py``), is not read again. Of any
other the evidence is hashed, and what was derived from evidence of that digest before is taken; else it is derived.
"""

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from suite.bundle.cache.code import ROOMS, code_key
from suite.bundle.cache.database import Database, checked, unchecked
from suite.bundle.cache.packing import Derived, Unpacking, manifest_of
from suite.bundle.cache.place import cache_folder
from suite.bundle.cache.survey import Surveyed
from suite.bundle.files import DamagedBundle
from suite.bundle.manifest_file import parse_manifest
from suite.bundle.store import Bundle, StillRunning
from suite.spec.manifest import Manifest

if TYPE_CHECKING:
    from suite.bundle.cache.reading import Read

_Made = TypeVar("_Made")
_Made_co = TypeVar("_Made_co", covariant=True)
#: Where runs of archives are, which lie in a folder of this process alone: found by their content.
_ARCHIVES = b""
#: So many new runs are written together.
_BATCH = 500
#: From so many on bundles are read on all cores, in processes that may be killed; for fewer it is not worth starting
#: these.
MANY = 200
_CHUNK = 25
_PUT = (
    "INSERT INTO runs (parent, name, state, content, record, {0}) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (parent, name) DO UPDATE SET "
    "state = excluded.state, content = excluded.content, record = excluded.record, "
    "line = NULL, site = NULL, export = NULL, {0} = excluded.{0}"
)


class View(Generic[_Made_co]):
    """Some facts of a run, kept beside its record as JSON so that who shows no more reads no record.

    ``column``: of the table; ``rooms``: whose code they depend on beside that of records; ``make``: what gives them, of
    the type ``kind``.
    """

    def __init__(
        self, column: str, rooms: tuple[str, ...], make: Callable[[Derived], _Made_co], kind: type[_Made_co]
    ) -> None:
        self.column, self.rooms, self.make = column, rooms, partial(_as_json, make)
        self.read: Callable[[bytes], _Made_co] = msgspec.json.Decoder(kind, dec_hook=lambda _, path: Path(path)).decode


def _as_json(make: Callable[[Derived], object], derived: Derived) -> bytes:
    return msgspec.json.encode(make(derived), enc_hook=str)


_Problem = StillRunning | DamagedBundle


def records_of(
    bundles: Sequence[Surveyed], is_alone: Callable[[Surveyed], bool] = lambda bundle: False
) -> list[Derived | _Problem]:
    """What the evidence of each bundle gives, or why it gives nothing. ``is_alone``: nobody else can change its files,
    which lie where they are for this once."""
    return _Table(None, is_alone).select(bundles, None)


def select(
    bundles: Sequence[Surveyed],
    view: View[_Made],
    is_alone: Callable[[Surveyed], bool] = lambda bundle: False,
    done: Callable[[int, int], None] | None = None,
) -> Sequence[_Made | _Problem]:
    """As ``records_of``, of a view. ``done`` is called with how many bundles were read, of how many that must be."""
    return _Table(view, is_alone).select(bundles, done)


class _Table:
    def __init__(self, view: View | None, is_alone: Callable[[Surveyed], bool]) -> None:
        self._view, self._is_alone = view, is_alone
        self._column = "record" if view is None else view.column
        self._database = Database(cache_folder())
        self._code = code_key() if self._database.is_open else b""
        self._view_code = b"" if view is None or not self._database.is_open else code_key((*ROOMS, *view.rooms))
        self._manifests: dict[str, Manifest] = {}
        self._unpacking = Unpacking()
        self._written: set[str] = set()

    def select(self, bundles: Sequence[Surveyed], done: Callable[[int, int], None] | None) -> list:
        try:
            found = {bundle: self._kept(bundle, *row) for bundle, row in self._rows(bundles)}
            self._database.flush()  # whoever keeps runs now may not write while this one reads
            fresh = [bundle for bundle in bundles if found.get(bundle) is None]
            for count, (bundle, made) in enumerate(self._fresh(fresh), start=1):
                found[bundle] = made
                if done is not None:
                    done(count, len(fresh))
                if count % _BATCH == 0:
                    self._database.flush()
            return [found[bundle] for bundle in bundles]
        finally:
            self._database.close()

    def _rows(self, bundles: Sequence[Surveyed]) -> Iterator[tuple[Surveyed, tuple]]:
        """Those whose files are as they were, with content and the column."""
        by_parent: dict[bytes, dict[bytes, Surveyed]] = {}
        for bundle in bundles:
            if bundle.signature is not None and self._database.is_open and not self._is_alone(bundle):
                parent, name = _place(bundle)
                by_parent.setdefault(parent, {})[name] = bundle
        for parent, inside in by_parent.items():
            query = f"SELECT name, state, content, {self._column} FROM runs WHERE parent = ?"
            for name, state, content, body in self._database.rows(query, parent):
                known = inside.get(name)
                if known is not None and state == self._state(known) and type(content) is bytes:
                    yield known, (content, body)

    def _state(self, bundle: Surveyed) -> bytes:
        return b"" if bundle.signature is None else bundle.signature.value + self._code

    def _kept(self, bundle: Surveyed, content: bytes, column: object) -> object:
        """What is kept of a bundle; null where it is not whole."""
        if bundle.has_lock and Bundle(Path(bundle.path)).running():
            return None  # who reads it tells that
        state = self._state(bundle)
        if self._view is None:
            return self._unpacked(unchecked(b"record" + state + content, column))
        kept = unchecked(self._name_of_view(state, content), column)
        try:
            if kept is not None:
                return self._view.read(kept)
        except (ValueError, TypeError, LookupError, AttributeError):  # its check holds, but not its content
            return None
        query = "SELECT record FROM runs WHERE parent = ? AND name = ?"
        for (record,) in self._database.rows(query, *_place(bundle)):
            derived = self._unpacked(unchecked(b"record" + state + content, record))
            if derived is not None:
                made = self._view.make(derived)
                body = checked(self._name_of_view(state, content), made)
                change = f"UPDATE runs SET {self._column} = ? WHERE parent = ? AND name = ?"
                self._database.change(change, body, *_place(bundle))
                return self._view.read(made)
        return None

    def _name_of_view(self, state: bytes, content: bytes) -> bytes:
        return self._column.encode() + self._view_code + state + content

    def _fresh(self, bundles: Sequence[Surveyed]) -> Iterator[tuple[Surveyed, object]]:
        """Many on all cores."""
        if not bundles:
            return
        from suite.bundle.cache.reading import read  # loads all that derives, which what is kept does without

        make = None if self._view is None else self._view.make
        waiting = iter(bundles)
        if len(bundles) >= MANY and len(os.sched_getaffinity(0)) > 1:
            results = _on_all_cores(partial(read, code=self._code, make=make), bundles)
            for result, bundle in zip(results, waiting, strict=False):  # a process that is killed ends it early
                yield bundle, self._taken(bundle, result)
        for bundle in waiting:
            yield bundle, self._taken(bundle, read(bundle, self._code, make, self._by_content))

    def _taken(self, bundle: Surveyed, read: "Read | _Problem") -> object:
        if isinstance(read, StillRunning | DamagedBundle):
            return read
        if read.content and self._is_alone(bundle):
            self._put(_ARCHIVES, read.content, b"", read)
        elif read.content and read.state:
            self._put(*_place(bundle), read.state, read)
        if self._view is not None:
            return self._view.read(read.view)
        derived = self._unpacked(read.body, read.manifest)
        assert derived is not None, "what was packed a moment ago"
        return derived

    def _put(self, parent: bytes, name: bytes, state: bytes, read: "Read") -> None:
        hash_ = manifest_of(read.body)
        if read.manifest and hash_ not in self._written:
            self._database.put(b"manifest " + hash_.encode(), read.manifest)
            self._written.add(hash_)
        record = checked(b"record" + state + read.content, read.body)
        column, view = "line", None
        if self._view is not None:
            column, view = self._column, checked(self._name_of_view(state, read.content), read.view)
        values = (parent, name, state, read.content, record, view)
        self._database.change(_PUT.format(column), *values)

    def _by_content(self, content: bytes) -> Derived | None:
        query = "SELECT state, record FROM runs WHERE content = ?"
        for state, record in self._database.rows(query, content):
            derived = self._unpacked(unchecked(b"record" + state + content, record))
            if derived is not None:
                return derived
        return None

    def _unpacked(self, body: bytes | None, manifest: bytes = b"") -> Derived | None:
        """Null for what is no record, though its check holds."""
        if body is None:
            return None
        try:
            hash_ = manifest_of(body)
            if hash_ not in self._manifests:
                text = manifest or self._database.get(b"manifest " + hash_.encode()) or b""
                self._manifests[hash_] = parse_manifest(text.decode(), "a kept manifest")
            known = self._manifests[hash_]
            return self._unpacking.unpacked(body, known) if known.hash == hash_ else None
        except (ValueError, KeyError, TypeError, AttributeError, DamagedBundle):
            return None


def _place(bundle: Surveyed) -> tuple[bytes, bytes]:
    return os.fsencode(bundle.parent), os.fsencode(bundle.name)


def _on_all_cores(
    read: Callable[[Surveyed], "Read | _Problem"], bundles: Sequence[Surveyed]
) -> "Iterator[Read | _Problem]":
    """In the order of the bundles. Where a process is killed it ends early, and hangs nothing."""
    context = multiprocessing.get_context("fork")
    with (
        suppress(BrokenProcessPool),
        # what the processes are forked with is not looked through for garbage at all
        ProcessPoolExecutor(len(os.sched_getaffinity(0)), mp_context=context, initializer=gc.freeze) as pool,
    ):
        yield from pool.map(read, bundles, chunksize=_CHUNK)
