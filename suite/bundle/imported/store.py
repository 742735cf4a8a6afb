"""Folders of imported logs: made whole, found beside bundles, and derived again from the log that lies in them."""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from suite.bundle.drafts import draft_folder
from suite.bundle.evidence import digest_of
from suite.bundle.files import DamagedBundle, first_line, parse_object, text_of, writing
from suite.bundle.imported.derive import derive
from suite.bundle.imported.record import IMPORT_SCHEMA, Import, ImportedRecord, LogFacts, Told
from suite.bundle.imported.steps import MOST_LOG_BYTES
from suite.bundle.imported.timers import Tool
from suite.bundle.store import AlreadyThere, Bundle, find_marked, parse_record, written
from suite.bundle.walk import RECORD
from suite.spec import foreign
from suite.spec.base import UsageError, digest
from suite.spec.foreign import DOCUMENT_BYTES
from suite.spec.schema_files import not_read
from suite.spec.version import suite_version

if TYPE_CHECKING:
    from suite.bundle.verify import Verification

IMPORT, LOG = "import.json", "source.log"
_IDENTITY_DIGITS = 12


@dataclass(frozen=True)
class ImportFolder(Bundle):
    """Evidence and a record as a bundle has them; a log stands in the place of manifest and events."""

    def asked(self) -> Import:
        """Raises DamagedBundle when import.json is missing or cannot be read."""
        body = parse_object(text_of(self._evidence(IMPORT, DOCUMENT_BYTES), IMPORT), IMPORT)
        if body.get("schema") != IMPORT_SCHEMA:
            raise DamagedBundle(not_read(IMPORT, body.get("schema"), IMPORT_SCHEMA, body.get("suite_version")))
        try:
            return Import.model_validate(body)
        except ValidationError as error:
            raise DamagedBundle(f"{IMPORT}: {first_line(error)}") from error

    def _evidence(self, name: str, limit_bytes: int) -> bytes:
        try:
            return self._bytes(name, limit_bytes)
        except FileNotFoundError as error:
            raise DamagedBundle(f"{name} is missing") from error

    def derived(self) -> ImportedRecord:
        """The record that its log gives now. Raises DamagedBundle, also for another log than the one imported."""
        asked, data = self.asked(), self._evidence(LOG, MOST_LOG_BYTES)
        facts = log_facts(data)
        if (facts.bytes, facts.sha256) != (asked.log.bytes, asked.log.sha256):
            raise DamagedBundle(f"{LOG} is not the log that was imported: its SHA-256 is {facts.sha256}")
        return derive(identity(asked), asked, data)


def log_facts(data: bytes) -> LogFacts:
    return LogFacts(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def identity(asked: Import) -> str:
    """The id of an import: equal ones are of the same log with the same words told about it."""
    known = asked.log.sha256_before or asked.log.sha256
    body = {"log": known, "warmup": asked.warmup, "told": asked.told.model_dump(mode="json")}
    return f"imported-{asked.tool}-{digest(body)[:_IDENTITY_DIGITS]}"


def import_log(log: Path, tool: Tool, told: Told, warmup: int, root: Path) -> ImportFolder:
    """Make a folder below ``root``, whole or not at all. Raises UsageError for a log that cannot be read or gives no
    steps, and where there is such an import already."""
    data = foreign.read_bytes(log, str(log), MOST_LOG_BYTES, by_user=True)
    asked = Import(suite_version=suite_version(), tool=tool, warmup=warmup, told=told, log=log_facts(data))
    name = identity(asked)
    try:
        record = derive(name, asked, data)
    except DamagedBundle as error:
        raise UsageError(f"{log}: {error}") from error
    made = ImportFolder(root / name)
    with writing(made.path):
        root.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(made.path):
            raise AlreadyThere(f"{made.path} exists: this log was imported with the same words before")
        with draft_folder(made.path) as draft:
            for file, content in ((IMPORT, written(asked).encode()), (LOG, data), (RECORD, written(record).encode())):
                (draft / file).write_bytes(content)
            draft.rename(made.path)
    return made


def find_all(paths: Iterable[Path]) -> tuple[list[Bundle], list[ImportFolder]]:
    """The bundles and the imports at and below ``paths``, each once, by id. Raises as ``find_bundles``."""
    bundles, imports = find_marked(paths, IMPORT)
    return bundles, list(map(ImportFolder, imports))


def is_run(path: Path) -> bool:
    """Whether this folder itself is a bundle or an import. Raises UsageError where it cannot be read."""
    return any(path == run.path for runs in find_all([path]) for run in runs)


def verify_import(folder: ImportFolder) -> "Verification":
    """Whether record.json is what the log gives. Never raises for what the folder holds."""
    from suite.bundle.verify import Verification, differences, verification  # loads all that derives records

    evidence = None
    try:
        evidence = digest_of(folder)
        derived, text = folder.derived(), folder.record_text()
        stored = None if text is None else parse_record(text)
    except DamagedBundle as error:
        return Verification(status="damaged", differences=(str(error),), digest=evidence)
    lines = None if stored is None else list(differences(stored, json.loads(written(derived))))
    return verification(lines, evidence)
