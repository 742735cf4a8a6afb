"""A bundle, or an imported log, without identity: scrubbed, and its record derived again from what is left."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from suite.bundle.archive.identity import CONTAINER, HOST, SERIAL, USER, Identities
from suite.bundle.evidence import evidence_files
from suite.bundle.files import DamagedBundle, check_tree, first_line, open_plain, parse_object, read_bytes
from suite.bundle.imported.record import Import, ImportedRecord
from suite.bundle.imported.steps import MOST_LOG_BYTES
from suite.bundle.imported.store import IMPORT, LOG, ImportFolder, log_facts
from suite.bundle.record import Record
from suite.bundle.store import Bundle, written
from suite.bundle.verify import differences, examined
from suite.bundle.walk import MANIFEST, RECORD
from suite.spec.base import UsageError

#: As much of one line of a log, or of a document, as is kept in memory.
_LONGEST = 16 << 20
_MOST_FILE_BYTES = 1900 << 20
#: Names of fields whose text is nothing but a name of that kind.
_KINDS = {
    HOST: "host hostname host_name node_name nodename nodelist node_list slurmd_nodename slurm_job_nodelist "
    "slurm_submit_host slurm_launch_node_ipaddr master_addr fqdn server_name pod_name",
    USER: "user username user_name logname login owner sudo_user slurm_job_user slurm_job_account account",
    CONTAINER: "container container_id",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
#: Fields of versions, in which four numbers are no address.
_VERSIONS = frozenset(("python", "driver", "cuda", "nccl", "kernel", "capability", "driver_python"))
_OF_VERSIONS = ("packages", "stack")
_COLOUR = re.compile(rb"\x1b\[[0-9;]{0,20}m")
_NUMBERS = re.compile(r"[\d:., -]*")
_IMAGES = ("reference", "image")
_PACKED = ".gz"


def learn_run(run: Bundle, names: Identities) -> None:
    """Gather the names that its files tell as those of hosts, users and containers. Raises DamagedBundle."""
    for name in evidence_files(run):
        for value, raw in _contents(run.path / name, name):
            if value is None:
                names.learn(_plain(raw))
            else:
                learn_json(value, names)


def learn_json(value: Any, names: Identities, key: str = "") -> None:
    """The same of parsed JSON; ``key``: the field that holds it."""
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else [(key, each) for each in value]:
            names.learn(name)
            learn_json(inner, names, name)
    elif isinstance(value, str):
        kind = _kind(key, value)
        if kind in _KINDS:
            names.learn_as(kind, value)
        elif key in _IMAGES and re.match(r"[\w-]+[.:][\w.:-]*/", value):
            names.learn(f"https://{value}")
        names.learn(value)


def scrub_json(value: Any, names: Identities, key: str = "", versions: bool = False) -> Any:
    """Parsed JSON without identity; what there is none in is given back as it is."""
    versions = versions or key in _OF_VERSIONS
    if isinstance(value, dict):
        changed = {names.scrub(name, True): scrub_json(inner, names, name, versions) for name, inner in value.items()}
        if len(changed) != len(value):
            raise UsageError(f"two fields of {key or 'a document'} would have one name without identity")
        return changed
    if isinstance(value, list):
        return [scrub_json(inner, names, key, versions) for inner in value]
    if not isinstance(value, str):
        return value
    kind = _kind(key, value)
    if kind:
        return names.whole(kind, value)
    return names.scrub(value, versions or key in _VERSIONS or key.endswith("version"))


def _kind(key: str, value: str) -> str | None:
    """What a text is by the name of its field alone; null where that says nothing, or it is a number."""
    folded = key.casefold()
    if "serial" in folded or folded.endswith("uuid"):
        return SERIAL
    kind = _KIND_OF.get(folded)
    return None if kind is None or _NUMBERS.fullmatch(value) or value.casefold() in ("localhost", "root") else kind


def require_free_of_identity(bundle: Bundle, names: Identities) -> None:
    """Raises UsageError where the manifest, which stays as it is, holds any: its hash binds it."""
    manifest = parse_object(bundle.manifest_text(), MANIFEST)
    _require_same(bundle, "manifest, which its hash binds", differences(manifest, scrub_json(manifest, names)))


def scrub(run: Bundle, target: Path, names: Identities, is_sound: bool) -> Bundle:
    """Make ``target`` the bundle or import without identity.

    ``is_sound``: its stored record is what its evidence gives, so that it is derived again; any other is scrubbed as
    it is, and stays as wrong as it was. Raises DamagedBundle, and UsageError where it cannot be.
    """
    clean = type(run)(target)
    for name in evidence_files(run):
        if name not in (MANIFEST, IMPORT):
            place = target / "/".join(map(names.scrub, name.split("/")))
            place.parent.mkdir(parents=True, exist_ok=True)
            _scrub_file(run.path / name, name, place, names)
    if isinstance(run, ImportFolder):
        (target / IMPORT).write_text(written(_scrubbed_import(run, target, names)), encoding="utf-8")
    else:
        require_free_of_identity(run, names)
        (target / MANIFEST).write_text(run.manifest_text(), encoding="utf-8")
    text = run.record_text()
    if text is not None:
        stored = parse_object(text, RECORD)
        scrubbed = scrub_json(stored, names)
        if scrubbed != stored:
            text = json.dumps(scrubbed, indent=2, allow_nan=False) + "\n"
        (target / RECORD).write_text(text, encoding="utf-8")
        if is_sound:
            _derive_again(run, clean, scrubbed)
    return clean


def _derive_again(run: Bundle, clean: Bundle, scrubbed: dict[str, Any]) -> None:
    """Replace its scrubbed record. Raises UsageError where any figure would be another."""
    record: Record | ImportedRecord
    if isinstance(clean, ImportFolder):
        record = clean.derived()
        lines = list(differences(scrubbed, json.loads(written(record))))
        _require_same(run, "record", lines, "id:", "log.", "notes")
    else:
        found = examined(clean)
        record, lines = found.record, found.differences or []
        _require_same(run, "record", lines, "evidence.")
    if lines:
        (clean.path / RECORD).write_text(written(record), encoding="utf-8")


def _require_same(run: Bundle, what: str, lines: Iterable[str], *but: str) -> None:
    """Raises UsageError for any of the differences of it, but those of fields that begin so."""
    for line in lines:
        if not line.startswith(but):
            raise UsageError(
                f"{run.path}: scrubbing would change its {what} ({line[:200]}): let that word stay with --keep, or "
                "pack with --keep-identity"
            )


def _scrubbed_import(folder: ImportFolder, target: Path, names: Identities) -> Import:
    asked, log = folder.asked(), log_facts(read_bytes(target / LOG, LOG, MOST_LOG_BYTES))
    before = asked.log.sha256_before or asked.log.sha256
    if before != log.sha256:
        log = log.model_copy(update={"sha256_before": before})
    told = scrub_json(asked.told.model_dump(mode="json"), names)
    try:
        return Import.model_validate({**asked.model_dump(by_alias=True), "told": told, "log": log})
    except ValidationError as error:
        raise UsageError(f"{folder.path}: without identity it is too long: {first_line(error)}") from error


def _scrub_file(source: Path, name: str, target: Path, names: Identities) -> None:
    """Write a file without identity. Raises DamagedBundle."""
    with target.open("xb") as plain, _packing(plain, name, "wb") as file:
        for value, raw in _contents(source, name):
            if value is None:
                # where something is scrubbed colours and zero bytes go too: a name may lie around them
                text = _plain(raw)
                scrubbed = names.scrub(text)
                file.write(raw if scrubbed == text else scrubbed.encode(errors="surrogateescape"))
            else:
                clean = scrub_json(value, names)
                file.write(raw if clean == value else _written(clean, name))


def _written(value: Any, name: str) -> bytes:
    if name.endswith(".jsonl"):
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def _contents(path: Path, name: str) -> Iterator[tuple[dict[str, Any] | None, bytes]]:
    """The parts of a file as they are, each with the object of JSON that it is; null for any other text."""
    is_json, left = name.endswith((".json", ".jsonl")), _MOST_FILE_BYTES
    try:
        # of a file that is packed, such as a trace of a profile, what is in it
        with open_plain(path, name, _MOST_FILE_BYTES) as plain, _packing(plain, name, "rb") as file:
            read = file.read if name.endswith(".json") else file.readline
            while part := read(_LONGEST):
                left -= len(part)
                if left < 0:
                    raise DamagedBundle(f"{name} holds more than {_MOST_FILE_BYTES} bytes, which are not scrubbed")
                if len(part) == _LONGEST and not part.endswith(b"\n"):
                    raise DamagedBundle(f"{name} has more than {_LONGEST} bytes in one piece, which is not scrubbed")
                yield _parsed(part, name) if is_json else None, part
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DamagedBundle(f"{name} cannot be unpacked, and so not be scrubbed: {error}") from error


def _packing(file: IO[bytes], name: str, mode: str) -> AbstractContextManager[IO[bytes] | gzip.GzipFile]:
    """Where the contents of that file are: without the name and the time that gzip would add."""
    return gzip.GzipFile(filename="", mode=mode, fileobj=file, mtime=0) if name.endswith(_PACKED) else nullcontext(file)


def _parsed(raw: bytes, name: str) -> dict[str, Any] | None:
    """Null for what is no object of JSON, which is then scrubbed as text. Raises DamagedBundle for one that cannot be
    written again."""
    try:
        value = parse_object(raw.decode(), name)
    except (DamagedBundle, UnicodeDecodeError):
        return None
    check_tree(value, name)
    return value


def _plain(line: bytes) -> str:
    return _COLOUR.sub(b"", line.replace(b"\0", b"")).decode(errors="surrogateescape")
