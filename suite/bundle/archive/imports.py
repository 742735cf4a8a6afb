"""Imported logs in an archive: without identity, and with the record that is derived again from what is left."""

from __future__ import annotations

from pathlib import Path

from suite.bundle.archive.identity import Identities
from suite.bundle.archive.scrubbing import learn_file, scrub_file, scrub_json
from suite.bundle.imported.derive import derive
from suite.bundle.imported.record import Import
from suite.bundle.imported.steps import MOST_LOG_BYTES, UnusableLog
from suite.bundle.imported.store import IMPORT, LOG, ImportFolder, identity, log_facts, write_import
from suite.spec.base import UsageError
from suite.spec.foreign import read_bytes


def learn_import(folder: ImportFolder, names: Identities) -> None:
    """Gather the names that its files tell. Raises DamagedBundle."""
    for name in (IMPORT, LOG):
        learn_file(folder.path / name, name, names)
    names.leave(folder.id)


def scrub_import(folder: ImportFolder, target: Path, names: Identities) -> bool:
    """Make ``target`` the import without identity; whether anything in it is another.

    Raises DamagedBundle, and UsageError where its figures would change.
    """
    asked, before = folder.asked(), folder.derived()
    target.mkdir(parents=True)
    scratch = target.with_name(f"{target.name}.{LOG}")
    scrub_file(folder.path / LOG, LOG, scratch, names)
    data = read_bytes(scratch, LOG, MOST_LOG_BYTES)
    known = scrub_json(asked.told.model_dump(mode="json"), names)
    if log_facts(data).sha256 == asked.log.sha256 and known == asked.told.model_dump(mode="json"):
        write_import(target, asked, data, before)
        return False
    facts = log_facts(data, asked.log.sha256_before or asked.log.sha256)
    clean = Import.model_validate({**asked.model_dump(by_alias=True), "told": known, "log": facts})
    try:
        after = derive(identity(clean), clean, data)
    except UnusableLog as error:
        raise _changed(folder, str(error)) from error
    same = {"id": before.id, "told": before.told, "log": before.log, "notes": before.notes}
    if after.model_copy(update=same) != before:
        raise _changed(folder, "other figures")
    write_import(target, clean, data, after)
    return True


def _changed(folder: ImportFolder, what: str) -> UsageError:
    return UsageError(
        f"{folder.path}: scrubbing would change what its log gives ({what[:200]}): a name of a host or user there is "
        "also another word; let it stay with --keep, or pack with --keep-identity"
    )
