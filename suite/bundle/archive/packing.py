"""From a results folder to one file that travels: the same bytes for the same folder."""

import getpass
import hashlib
import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from suite.bundle.archive import scrubbing
from suite.bundle.archive.identity import HOST, USER, Identities
from suite.bundle.archive.index import (
    LICENCES,
    RUNS,
    SBOMS,
    SUBMITTED,
    Index,
    LeftOut,
    PackedFile,
    PackedRun,
    require_names,
    written_index,
)
from suite.bundle.archive.signature import sign
from suite.bundle.archive.zip_file import MOST_BYTES, MOST_FILES, open_content, write_archive
from suite.bundle.drafts import draft_folder
from suite.bundle.evidence import digest_if_any, digest_of_all, evidence_files
from suite.bundle.files import check_tree, parse_object, read_text, writing
from suite.bundle.imported.store import ImportFolder, find_all, identity, verify_import
from suite.bundle.store import Bundle
from suite.bundle.verify import Verification, verify_all
from suite.bundle.walk import ATTIC, RECORD, STUDY, find_studies
from suite.spec.base import UsageError
from suite.spec.foreign import DOCUMENT_BYTES, read_bytes
from suite.spec.version import suite_version

_MOST_SBOM_BYTES = 64 << 20
_Checked = tuple[Bundle, Verification]


@dataclass(frozen=True)
class Packing:
    """How a folder is packed. ``keep``: words that may stay; ``scrub``: words to scrub beside what is found."""

    keep_identity: bool = False
    keep: Sequence[str] = ()
    scrub: Sequence[str] = ()
    licences: Sequence[Path] = ()
    sboms: Sequence[Path] = ()
    sign: Path | None = None


def pack(folder: Path, output: Path, how: Packing) -> Index:
    """Write the bundles at and below a folder, with what was submitted from there, whole or not at all; its index.
    Raises UsageError."""
    bundles, imports = find_all([folder])
    checked: list[_Checked] = [*verify_all(bundles, frozenset([folder]))]
    checked += [(each, verify_import(each)) for each in imports]
    if not checked:
        raise UsageError(f"no bundle in {folder}")
    is_bundle = len(checked) == 1 and os.path.samefile(checked[0][0].path, folder)
    root = folder.resolve().parent if is_bundle else folder
    documents = {} if is_bundle else dict(_documents(folder))
    reasons = [_reason(run, result) for run, result in checked]
    whole = [one for one, reason in zip(checked, reasons, strict=True) if reason is None]
    if not whole:
        raise UsageError(f"no bundle of {folder} can be packed: {reasons[0]}")
    names = None if how.keep_identity else _learnt(how, root, whole, documents)
    left_out = [
        LeftOut(path=_path(_below(run, root), names), reason=reason if names is None else names.scrub(reason))
        for (run, _), reason in zip(checked, reasons, strict=True)
        if reason is not None
    ]
    files = _enclosed(how)
    runs: list[PackedRun] = []
    with tempfile.TemporaryDirectory(prefix="suite-pack-") as place:
        for run, result in whole:
            path, clean, digest = _path(_below(run, root), names), run, result.digest
            if names is not None:
                target = Path(place, str(len(runs)), run.path.resolve().name)
                clean = scrubbing.scrub(run, target, names, result.status in ("equal", "inconsistent"))
                digest = digest_if_any(clean)
            before = result.digest if digest != result.digest else None
            stored = [] if result.status == "missing record" else [RECORD]
            files |= {f"{RUNS}/{path}/{name}": clean.path / name for name in (*evidence_files(clean), *stored)}
            runs.append(
                PackedRun(path=path, id=_id_of(clean), digest=digest, digest_before=before, verified=result.status)
            )
        for path, body in documents.items():
            text = json.dumps(body if names is None else scrubbing.scrub_json(body, names), indent=2, allow_nan=False)
            files[f"{RUNS}/{_path(path, names)}"] = f"{text}\n".encode()
        digests = [run.digest for run in runs if run.digest is not None]
        index = Index(
            suite_version=suite_version(),
            packed="bundle" if is_bundle else "folder",
            identity="kept" if names is None else "scrubbed",
            scrubbed={} if names is None else names.counts(),
            digest=digest_of_all(digests) if len(digests) == len(runs) else None,
            runs=tuple(sorted(runs, key=lambda run: run.path.encode())),
            left_out=tuple(sorted(left_out, key=lambda each: each.path.encode())),
            licences=tuple(sorted(name for name in files if name.startswith(f"{LICENCES}/"))),
            sboms=tuple(sorted(name for name in files if name.startswith(f"{SBOMS}/"))),
            files=_described(files),
        )
        data = written_index(index)
        signature = None if how.sign is None else sign(data, how.sign)
        with writing(output), draft_folder(output) as draft:
            write_archive(draft / "archive", data, signature, files)
            (draft / "archive").replace(output)
            draft.rmdir()
    return index


def _learnt(how: Packing, root: Path, whole: Sequence[_Checked], documents: dict[str, dict]) -> Identities:
    """With the names that anything in the archive tells as such."""
    names = Identities(how.keep, how.scrub)
    names.learn_as(HOST, platform.node())  # whose name may stand where nothing tells that it is one, as the user's
    with suppress(KeyError, OSError):  # a user without a name
        names.learn_as(USER, getpass.getuser())
    for run, _ in whole:
        names.leave(_id_of(run))
        scrubbing.learn_run(run, names)
        names.learn(_below(run, root))
    for path, body in documents.items():
        names.leave(Path(path).stem)  # a submission is called as its run
        names.leave(Path(path).name)
        scrubbing.learn_json(body, names)
    return names


def _path(path: str, names: Identities | None) -> str:
    return path if names is None else "/".join(map(names.scrub, path.split("/")))


def _enclosed(how: Packing) -> dict[str, Path | bytes]:
    """Texts of licences, the suite's own first where it is installed, and lists of what images hold, by their paths."""
    found: dict[str, Path | bytes] = {}
    with suppress(importlib.metadata.PackageNotFoundError):
        if own := importlib.metadata.distribution("rlhf-suite").read_text("licenses/LICENSE"):
            found[f"{LICENCES}/suite.txt"] = own.encode()
    for folder, paths, most in ((LICENCES, how.licences, DOCUMENT_BYTES), (SBOMS, how.sboms, _MOST_SBOM_BYTES)):
        for path in paths:
            name = f"{folder}/{path.name}"
            if name in found:
                raise UsageError(f"{path}: the archive has another {name}")
            found[name] = data = read_bytes(path, str(path), most, by_user=True)
            if folder == SBOMS and b'"CycloneDX"' not in data:
                raise UsageError(f"{path} is no CycloneDX list of components, as suite images check --sbom writes it")
    return found


def _reason(run: Bundle, result: Verification) -> str | None:
    """Why a run is not packed; null where it is."""
    if result.status == "damaged":
        return f"damaged: {result.differences[0]}"
    return "is still being run" if run.running() else None


def _id_of(run: Bundle) -> str:
    return identity(run.asked()) if isinstance(run, ImportFolder) else run.manifest().run.id


def _below(run: Bundle, root: Path) -> str:
    return Path(os.path.relpath(run.path.resolve(), root.resolve())).as_posix()


def _documents(folder: Path) -> Iterator[tuple[str, dict]]:
    """What was handed to a cluster from the folder and those below it, and studies there, by their paths. Raises
    DamagedBundle."""
    found = [study / STUDY for study in find_studies([folder])]
    for root, folders, _ in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name != ATTIC]
        if not Path(root, SUBMITTED).is_symlink():
            found += Path(root, SUBMITTED).glob("[!.]*.json")
    for file in sorted(found):
        name = Path(os.path.relpath(file, folder)).as_posix()
        body = parse_object(read_text(file, name), name)
        check_tree(body, name)
        yield name, body


def _described(contents: Mapping[str, Path | bytes]) -> tuple[PackedFile, ...]:
    """Raises UsageError for what no archive holds."""
    require_names(contents, "the folder")
    files = []
    for path in sorted(contents, key=str.encode):
        with open_content(contents[path], path) as file:
            found = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type] # the type of open files lacks readinto
            files.append(PackedFile(path=path, bytes=file.seek(0, os.SEEK_END), sha256=found.hexdigest()))
    total = sum(file.bytes for file in files)
    if len(files) > MOST_FILES - 2 or total > MOST_BYTES:
        most = f"the {MOST_FILES} and {MOST_BYTES} of one archive"
        raise UsageError(f"{len(files)} files of {total} bytes are more than {most}: pack fewer runs")
    return tuple(files)
