"""From a results folder to one file that travels: the same bytes for the same folder."""

import getpass
import hashlib
import importlib.metadata
import json
import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class Packing:
    """How a folder is packed. ``keep``: words that may stay; ``scrub``: words to scrub beside what is found."""

    keep_identity: bool = False
    keep: Sequence[str] = ()
    scrub: Sequence[str] = ()
    licences: Sequence[Path] = ()
    sboms: Sequence[Path] = ()
    sign: Path | None = None


@dataclass
class _Content:
    """Files of an archive by their path in it, and what its index says of runs. ``names``: null where identity stays;
    ``place``: for what is scrubbed."""

    names: Identities | None
    place: Path
    files: dict[str, Path | bytes] = field(default_factory=dict)
    runs: list[PackedRun] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def scrubbed(self, text: str) -> str:
        return text if self.names is None else self.names.scrub(text)

    def scrubbed_path(self, path: str) -> str:
        return "/".join(map(self.scrubbed, path.split("/")))

    def add(self, path: str, run: Bundle, result: Verification) -> None:
        digest, before = result.digest, None
        if self.names is not None:
            target = self.place / str(len(self.runs)) / run.path.resolve().name
            run = scrubbing.scrub(run, target, self.names, result.status in ("equal", "inconsistent"))
            digest = digest_if_any(run)
            before = result.digest if digest != result.digest else None
        names = [*evidence_files(run), *([] if result.status == "missing record" else [RECORD])]
        self.files.update({f"{RUNS}/{path}/{name}": run.path / name for name in names})
        self.runs.append(
            PackedRun(path=path, id=_id_of(run), digest=digest, digest_before=before, verified=result.status)
        )


def pack(folder: Path, output: Path, how: Packing) -> Index:
    """Write the bundles at and below a folder, with what was submitted from there, whole or not at all; its index.
    Raises UsageError."""
    bundles, imports = find_all([folder])
    paths = [*(bundle.path for bundle in bundles), *(each.path for each in imports)]
    if not paths:
        raise UsageError(f"no bundle in {folder}")
    is_bundle = len(paths) == 1 and os.path.samefile(paths[0], folder)
    enclosed = _enclosed(how)
    checked: list[tuple[Bundle, Verification]] = [*verify_all(bundles, frozenset([folder]))]
    checked += [(each, verify_import(each)) for each in imports]
    with tempfile.TemporaryDirectory(prefix="suite-pack-") as place:
        content = _Content(None if how.keep_identity else Identities(how.keep, how.scrub), Path(place))
        _fill(content, folder, checked, is_bundle)
        content.files.update(enclosed)
        index = _index(content, is_bundle)
        data = written_index(index)
        signature = None if how.sign is None else sign(data, how.sign)
        with writing(output), draft_folder(output) as draft:
            write_archive(draft / "archive", data, signature, content.files)
            (draft / "archive").replace(output)
            draft.rmdir()
    return index


def _enclosed(how: Packing) -> dict[str, bytes]:
    """Texts of licences, the suite's own first where it is installed, and lists of what images hold, by their paths."""
    found = {}
    with suppress(importlib.metadata.PackageNotFoundError):
        own = importlib.metadata.distribution("rlhf-suite").read_text("licenses/LICENSE")
        found[f"{LICENCES}/suite.txt"] = (own or "").encode()
    for folder, paths, most in ((LICENCES, how.licences, DOCUMENT_BYTES), (SBOMS, how.sboms, _MOST_SBOM_BYTES)):
        for path in paths:
            name = f"{folder}/{path.name}"
            if name in found:
                raise UsageError(f"{path}: the archive has another {name}")
            found[name] = read_bytes(path, str(path), most, by_user=True)
            if folder == SBOMS and b'"CycloneDX"' not in found[name]:
                raise UsageError(f"{path} is no CycloneDX list of components, as suite images check --sbom writes it")
    return found


def _fill(content: _Content, folder: Path, checked: list[tuple[Bundle, Verification]], is_bundle: bool) -> None:
    names = content.names
    found = [(run, result, _below(run, folder, is_bundle), _reason(run, result)) for run, result in checked]
    documents = {} if is_bundle else dict(_documents(folder))
    if names is not None:
        names.learn_as(HOST, platform.node())  # whose name may stand where nothing tells that it is one, as the user's
        with suppress(KeyError, OSError):  # a user without a name
            names.learn_as(USER, getpass.getuser())
        for run, _, below, reason in found:
            if reason is None:
                names.leave(_id_of(run))
                scrubbing.learn_run(run, names)
                names.learn(below)
        for path, body in documents.items():
            names.leave(Path(path).stem)  # a submission is called as its run
            names.leave(Path(path).name)
            scrubbing.learn_json(body, names)
    for run, result, below, reason in found:
        path = content.scrubbed_path(below)
        if reason is None:
            content.add(path, run, result)
        else:
            content.left_out.append(LeftOut(path=path, reason=content.scrubbed(reason)))
    for path, body in documents.items():
        clean = body if names is None else scrubbing.scrub_json(body, names)
        text = json.dumps(clean, indent=2, allow_nan=False) + "\n"
        content.files[f"{RUNS}/{content.scrubbed_path(path)}"] = text.encode()
    if not content.runs:
        raise UsageError(f"no bundle of {folder} can be packed: {content.left_out[0].reason}")


def _reason(run: Bundle, result: Verification) -> str | None:
    """Why a run is not packed; null where it is."""
    if result.status == "damaged":
        return f"damaged: {result.differences[0]}"
    return "is still being run" if run.running() else None


def _id_of(run: Bundle) -> str:
    return identity(run.asked()) if isinstance(run, ImportFolder) else run.manifest().run.id


def _below(run: Bundle, folder: Path, is_bundle: bool) -> str:
    """Where it lies below the folder, with slashes; of a folder that is the run, its name."""
    return run.path.resolve().name if is_bundle else Path(os.path.relpath(run.path, folder)).as_posix()


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


def _index(content: _Content, is_bundle: bool) -> Index:
    require_names(content.files, "the folder")
    files = tuple(_described(path, content.files[path]) for path in sorted(content.files, key=str.encode))
    total = sum(file.bytes for file in files)
    if len(files) > MOST_FILES - 2 or total > MOST_BYTES:
        most = f"the {MOST_FILES} and {MOST_BYTES} of one archive"
        raise UsageError(f"{len(files)} files of {total} bytes are more than {most}: pack fewer runs")
    digests = [run.digest for run in content.runs if run.digest is not None]
    return Index(
        suite_version=suite_version(),
        packed="bundle" if is_bundle else "folder",
        identity="kept" if content.names is None else "scrubbed",
        scrubbed={} if content.names is None else content.names.counts(),
        digest=digest_of_all(digests) if len(digests) == len(content.runs) else None,
        runs=tuple(sorted(content.runs, key=lambda run: run.path.encode())),
        left_out=tuple(sorted(content.left_out, key=lambda each: each.path.encode())),
        licences=tuple(file.path for file in files if file.path.startswith(f"{LICENCES}/")),
        sboms=tuple(file.path for file in files if file.path.startswith(f"{SBOMS}/")),
        files=files,
    )


def _described(path: str, content: Path | bytes) -> PackedFile:
    with open_content(content, path) as file:
        found = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type] # the type of open files lacks readinto
        return PackedFile(path=path, bytes=file.seek(0, os.SEEK_END), sha256=found.hexdigest())
