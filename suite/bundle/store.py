"""A run's folder: made whole, held by one driver at a time, read without trust."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import BaseModel

from suite.bundle import files
from suite.bundle.drafts import draft_folder
from suite.bundle.events import Events, read_events
from suite.bundle.files import DamagedBundle
from suite.bundle.manifest_file import parse_manifest
from suite.bundle.parts import MOST_COUNT, MOST_SECONDS
from suite.bundle.record import RECORD_SCHEMA, Record, as_record, text_of
from suite.bundle.walk import ATTIC as ATTIC
from suite.bundle.walk import LOCK, MANIFEST, RECORD, places_once
from suite.launch.outcome import Failure, Outcome
from suite.launch.traces import LONGEST_LINE
from suite.spec.base import UsageError
from suite.spec.foreign import DOCUMENT_BYTES
from suite.spec.manifest import Manifest
from suite.spec.names import SAFE_ID
from suite.spec.redaction import without_secrets

_ENVIRONMENT = "environment.json"
#: What a record is derived from, beside the events.
DOCUMENTS = frozenset((MANIFEST, _ENVIRONMENT))
_LOCK_BYTES, _MADE = 4096, os.O_RDWR | os.O_CREAT
#: Between two tries to hold a run, and all of them: whoever only looks whether it is held does so for less.
_LOOK_SECONDS, _PATIENCE_SECONDS = 0.02, 2.0
#: Of what the driver writes of a run's end: a phase's name is shorter, no failure needs more lines, no code is so far.
_LONGEST_PHASE, _MOST_LINES, _MOST_CODE = 80, 500, 1 << 31


class StillRunning(UsageError):
    """A driver holds the run, so there is nothing final to derive."""


class AlreadyThere(UsageError):
    """There is such a run already, perhaps since a moment ago: another driver works in the same folder."""


class HeldByAnother(UsageError):
    """Another process has the run: it runs it, or has just moved it away."""


@dataclass
class DriverLog:
    """The driver's events, each on disk before ``write`` returns."""

    path: Path
    file: BinaryIO
    seq: int = 0

    def write(self, kind: str, **fields: Any) -> None:
        """Append one event with its kind, time and sequence number. Raises UsageError when the disk refuses."""
        event = {"kind": kind, "rank": None, "time": time.time(), "seq": self.seq, **fields}
        with files.writing(self.path):
            self.file.write(json.dumps(event, allow_nan=False).encode() + b"\n")
            self.file.flush()
            os.fsync(self.file.fileno())
        self.seq += 1


@dataclass(frozen=True)
class Bundle:
    """``held``: files that were read already, by their names; others are read from the disk."""

    path: Path
    held: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    @contextmanager
    def begin(cls, root: Path, manifest: Manifest) -> Iterator["Bundle"]:
        """As ``create``; every other driver is kept out from the moment on at which it can be seen."""
        with ExitStack() as ending:
            yield cls.create(root, manifest, lambda draft: ending.callback(os.close, files.locked(draft / LOCK, _MADE)))

    @classmethod
    def create(
        cls, root: Path, manifest: Manifest, before_shown: Callable[[Path], object] = lambda draft: None
    ) -> "Bundle":
        """Make ``root/<run id>`` with its manifest; it appears whole or not at all. ``before_shown``: of its draft.

        Raises AlreadyThere when it exists, UsageError when the root is a file, unwritable or on a full disk.
        """
        if not SAFE_ID.fullmatch(manifest.run.id):
            raise UsageError(f"run id {manifest.run.id!r} cannot be the name of a folder")
        path = root / manifest.run.id
        with files.writing(path):
            root.mkdir(parents=True, exist_ok=True)
            try:
                with draft_folder(path) as draft:
                    (draft / "events").mkdir()
                    (draft / "logs").mkdir()
                    files.write_synced(draft / MANIFEST, written(manifest))
                    files.sync_folder(draft)
                    before_shown(draft)
                    draft.rename(path)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise AlreadyThere(f"{path} exists; nothing is overwritten") from error
                raise
            files.sync_folder(root)
        return cls(path)

    @property
    def id(self) -> str:
        return self.path.name

    def manifest(self) -> Manifest:
        """Raises DamagedBundle when it is missing, unreadable or was changed."""
        try:
            return parse_manifest(self.manifest_text(), MANIFEST)
        except FileNotFoundError as error:
            raise DamagedBundle(f"{MANIFEST} is missing") from error

    def manifest_text(self) -> str:
        """As it is. Raises FileNotFoundError, DamagedBundle."""
        return self._document(MANIFEST)

    def write_environment(self, facts: dict[str, Any]) -> None:
        """What the driver saw before it started. Raises UsageError when it cannot be written."""
        text = json.dumps(facts, indent=2, sort_keys=True, allow_nan=False)
        files.replace_atomically(self.path / _ENVIRONMENT, f"{text}\n")

    def environment(self) -> dict[str, Any] | None:
        """The driver's facts; null where there are none. Raises DamagedBundle."""
        try:
            facts = files.parse_object(self._document(_ENVIRONMENT), _ENVIRONMENT)
        except FileNotFoundError:
            return None
        files.check_tree(facts, _ENVIRONMENT)
        return facts

    @contextmanager
    def driver_events(self) -> Iterator[DriverLog]:
        """``.write(kind, **fields)`` appends to a new events/driver.jsonl. Raises UsageError when the disk refuses."""
        path = self.path / "events" / "driver.jsonl"
        with files.writing(path):
            file = path.open("xb")
        with file:
            yield DriverLog(path, file)

    def events(self, manifest: Manifest | None = None) -> Events:
        """The driver's and every rank's events, checked, by a manifest that was read already. Raises DamagedBundle."""
        return read_events(self.path / "events", manifest or self.manifest(), self._bytes)

    @contextmanager
    def hold(self, patience_seconds: float = _PATIENCE_SECONDS) -> Iterator[None]:
        """Keep every other driver out, waiting so long for one that only looks.

        Raises HeldByAnother when another process holds the run or has moved it away, UsageError when it cannot be held.
        """
        give_up = time.monotonic() + patience_seconds
        with files.writing(self.path / LOCK):
            while True:
                try:
                    descriptor = files.locked(self.path / LOCK, _MADE)
                    break
                except BlockingIOError as error:
                    if time.monotonic() >= give_up:
                        raise HeldByAnother(f"{self.path} is being run by another process") from error
                    time.sleep(_LOOK_SECONDS)
        try:
            if not _is_at(descriptor, self.path / LOCK):
                raise HeldByAnother(f"{self.path} was moved by another process")
            yield
        finally:
            os.close(descriptor)

    def running(self) -> bool:
        """Whether some driver, this process included, holds the run."""
        try:
            with files.open_plain(self.path / LOCK, LOCK, _LOCK_BYTES) as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (FileNotFoundError, DamagedBundle):
            return False
        except BlockingIOError:
            return True
        return False

    def write_record(self, record: Record) -> None:
        """Replace record.json at once. Raises UsageError when it cannot be written."""
        files.replace_atomically(self.path / RECORD, written(record))

    def record(self) -> Record | None:
        """As stored; null where there is none, or one of another version's schema. Raises DamagedBundle."""
        text = self.record_text()
        stored = {} if text is None else parse_record(text)
        if stored.get("schema") != RECORD_SCHEMA:
            return None
        try:
            return as_record(stored)
        except ValueError as error:
            raise DamagedBundle(f"{RECORD}: {error}") from error

    def record_text(self) -> str | None:
        """record.json as it is; null where there is none. Raises DamagedBundle."""
        try:
            return self._document(RECORD)
        except FileNotFoundError:
            return None

    def _document(self, name: str) -> str:
        return files.text_of(self._bytes(name, DOCUMENT_BYTES), name)

    def _bytes(self, name: str, limit_bytes: int) -> bytes:
        """Raises FileNotFoundError, DamagedBundle."""
        content = self.held.get(name)
        if content is None or len(content) > limit_bytes:
            return files.read_bytes(f"{self.path}/{name}", name, limit_bytes)
        return content


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except OSError:
        return False


def written(model: BaseModel | Record) -> str:
    """The text of record.json, as of every file that is a model."""
    return text_of(model) if isinstance(model, Record) else model.model_dump_json(by_alias=True, indent=2) + "\n"


def parse_record(text: str) -> dict[str, Any]:
    """The text of record.json as any version wrote it. Raises DamagedBundle."""
    stored = files.parse_object(text, RECORD)
    files.check_tree(stored, RECORD)
    return stored


def failure_fields(failure: Failure) -> dict[str, Any]:
    """Of the driver's ``failure`` event: short Unicode text without secrets, and an iteration that can be one."""
    iteration = failure.iteration
    return {
        "failure": failure.kind,
        "phase": None if failure.phase is None else _short(failure.phase, _LONGEST_PHASE),
        "iteration": iteration if iteration is not None and 0 <= iteration <= MOST_COUNT else None,
        "evidence": [_short(without_secrets(line), LONGEST_LINE) for line in failure.evidence[:_MOST_LINES]],
    }


def end_fields(outcome: Outcome, ranks: int) -> dict[str, Any]:
    """Of the driver's ``end`` event: exit codes of the ranks that there are, and a time that can be one."""
    codes = [(rank, code) for rank, code in outcome.exit_codes.items() if 0 <= rank < ranks]
    return {
        "status": outcome.status,
        "exit_codes": {str(rank): None if code is None or abs(code) >= _MOST_CODE else code for rank, code in codes},
        "elapsed_seconds": min(outcome.elapsed_seconds, MOST_SECONDS),
    }


def _short(text: str, longest: int) -> str:
    return text[:longest].encode(errors="replace").decode()


def find_bundles(paths: Iterable[Path]) -> list[Bundle]:
    """The bundles at and below ``paths``, each once, by run id. Raises UsageError for what is no readable folder."""
    return find_marked(paths, None)[0]


def find_marked(paths: Iterable[Path], mark: str | None) -> tuple[list[Bundle], list[Path]]:
    """As ``find_bundles``, and the folders beside them that hold a file of the name ``mark``, in order."""
    found = [(Path(place.path), place.is_bundle) for _, place in places_once(paths, mark)]
    found.sort(key=lambda one: (one[0].name, str(one[0])))
    return [Bundle(path) for path, is_bundle in found if is_bundle], [path for path, is_one in found if not is_one]
