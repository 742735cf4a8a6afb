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
from zipfile import ZipFile

import suite
from suite.bundle.archive import scrubbing
from suite.bundle.archive.identity import HOST, USER, Identities
from suite.bundle.archive.index import (
    INDEX,
    LICENCES,
    RUNS,
    SBOMS,
    SIGNATURE,
    SUBMITTED,
    Index,
    LeftOut,
    PackedFile,
    PackedRun,
    require_names,
    written_index,
)
from suite.bundle.archive.signature import sign
from suite.bundle.archive.zip_file import MOST_BYTES, MOST_FILES, add_file, open_content
from suite.bundle.drafts import draft_folder
from suite.bundle.evidence import digest_of, digest_of_all, evidence_files
from suite.bundle.files import DamagedBundle, check_tree, parse_object, read_text, sync_folder, writing
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


@dataclass(frozen=True)
class Packed:
    index: Index
    index_sha256: str
    bytes: int
    is_signed: bool


@dataclass
class _Content:
    """Files of an archive by their path in it, and what its index says of runs. ``names``: without them identity
    stays; ``place``: for what is scrubbed."""

    names: Identities | None
    place: Path
    files: dict[str, Path | bytes] = field(default_factory=dict)
    runs: list[PackedRun] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def scrubbed(self, text: str) -> str:
        return text if self.names is None else self.names.scrub(text)

    def scrubbed_path(self, path: str) -> str:
        """A submission's file is called as its run."""
        stem, end = (path.removesuffix(".json"), ".json") if f"{SUBMITTED}/" in path else (path, "")
        return "/".join(map(self.scrubbed, stem.split("/"))) + end

    def add(self, path: str, run: Bundle, result: Verification) -> None:
        digest, before = result.digest, None
        if self.names is not None:
            clean = type(run)(self.place / str(len(self.runs)) / run.path.resolve().name)
            if scrubbing.scrub(run, clean.path, self.names, result.status in ("equal", "inconsistent")):
                digest, before = digest_of(clean), result.digest
                run = clean
        names = [*evidence_files(run), *([] if result.status == "missing record" else [RECORD])]
        self.files.update({f"{RUNS}/{path}/{name}": run.path / name for name in names})
        self.runs.append(
            PackedRun(path=path, id=_id_of(run), digest=digest, digest_before=before, verified=result.status)
        )


def pack(folder: Path, output: Path, how: Packing) -> Packed:
    """Write the bundles at and below a folder, with what was submitted from there, whole or not at all. Raises
    UsageError."""
    bundles, imports = find_all([folder])
    if not bundles and not imports:
        raise UsageError(f"no bundle in {folder}")
    paths = [*(bundle.path for bundle in bundles), *(each.path for each in imports)]
    is_bundle = len(paths) == 1 and os.path.samefile(paths[0], folder)
    licences = {f"{LICENCES}/suite.txt": own} if (own := _own_licence()) else {}
    extra = {**licences, **_named(how.licences, LICENCES, DOCUMENT_BYTES), **_sboms(how.sboms)}
    with tempfile.TemporaryDirectory(prefix="suite-pack-") as place:
        content = _Content(None if how.keep_identity else Identities(how.keep, how.scrub), Path(place))
        _fill(content, folder, bundles, imports, is_bundle)
        content.files.update(extra)
        index = _index(content, is_bundle)
        return _written(output, index, content, how.sign)


def _fill(content: _Content, folder: Path, bundles: list[Bundle], imports: list[ImportFolder], is_bundle: bool) -> None:
    names = content.names
    checked: list[tuple[Bundle, Verification]] = [*verify_all(bundles, frozenset([folder]))]
    checked += [(each, verify_import(each)) for each in imports]
    found = [(run, result, _below(run, folder, is_bundle), _reason(run, result)) for run, result in checked]
    documents = [] if is_bundle else list(_documents(folder))
    if names is not None:
        names.learn_as(HOST, platform.node())  # whose name may stand where nothing tells that it is one, as the user's
        with suppress(KeyError, OSError):  # a user without a name
            names.learn_as(USER, getpass.getuser())
        for run, _, below, reason in found:
            if reason is None:
                names.leave(_id_of(run))
                scrubbing.learn_run(run, names)
                names.learn(below)
        for path, body in documents:
            names.leave(Path(path).stem)
            scrubbing.learn_json(body, names)
    for run, result, below, reason in found:
        path = content.scrubbed_path(below)
        if reason is None:
            content.add(path, run, result)
        else:
            content.left_out.append(LeftOut(path=path, reason=content.scrubbed(reason)))
    for path, body in documents:
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
    """Where it lies below the folder, with slashes; of a folder that is the run, its id."""
    if not is_bundle:
        return Path(os.path.relpath(run.path, folder)).as_posix()
    try:
        return _id_of(run)
    except DamagedBundle:
        return run.path.resolve().name


def _documents(folder: Path) -> Iterator[tuple[str, dict]]:
    """What was handed to a cluster from the folder and those below it, and studies there, by their paths."""
    for root, folders, _ in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != ATTIC)
        if not Path(root, SUBMITTED).is_symlink():
            for file in sorted(Path(root, SUBMITTED).glob("[!.]*.json")):
                yield _document(file, folder, "submission")
    for study in find_studies([folder]):
        yield _document(study / STUDY, folder, "study")


def _document(file: Path, folder: Path, kind: str) -> tuple[str, dict]:
    name = Path(os.path.relpath(file, folder)).as_posix()
    try:
        body = parse_object(read_text(file, name), name)
        check_tree(body, name)
    except DamagedBundle as error:
        raise UsageError(f"{file} is no {kind}: {error}") from error
    return name, body


def _own_licence() -> bytes:
    """Of the checkout or the installed package, which records are made with; empty where there is none."""
    beside = Path(next(iter(suite.__path__))).resolve().parent / "LICENSE"
    if beside.is_file():
        return read_bytes(beside, "LICENSE", DOCUMENT_BYTES)
    try:
        return (importlib.metadata.distribution("rlhf-suite").read_text("licenses/LICENSE") or "").encode()
    except importlib.metadata.PackageNotFoundError:
        return b""


def _sboms(paths: Sequence[Path]) -> dict[str, bytes]:
    """Raises UsageError for what is no CycloneDX list."""
    found = _named(paths, SBOMS, _MOST_SBOM_BYTES)
    for path, data in found.items():
        body = {}
        with suppress(DamagedBundle):
            body = parse_object(data.decode(errors="replace"), path)
        if body.get("bomFormat") != "CycloneDX":
            raise UsageError(f"{path} is no CycloneDX list of components, as suite images check --sbom writes it")
    return found


def _named(paths: Sequence[Path], folder: str, most: int) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in paths:
        name = f"{folder}/{path.name}"
        if name in found or name == f"{LICENCES}/suite.txt":
            raise UsageError(f"{path}: the archive has another {name}")
        found[name] = read_bytes(path, str(path), most, by_user=True)
    return found


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


def _written(output: Path, index: Index, content: _Content, key: Path | None) -> Packed:
    data = written_index(index)
    signature = None if key is None else sign(data, key)
    with writing(output):
        with draft_folder(output) as folder:
            draft = folder / INDEX
            with draft.open("xb") as file:
                with ZipFile(file, "w") as archive:
                    add_file(archive, INDEX, data)
                    if signature is not None:
                        add_file(archive, SIGNATURE, signature)
                    for packed in index.files:
                        add_file(archive, packed.path, content.files[packed.path])
                file.flush()
                os.fsync(file.fileno())
                size = file.tell()
            draft.replace(output)
            folder.rmdir()
        sync_folder(output.parent)
    return Packed(index, hashlib.sha256(data).hexdigest(), size, signature is not None)
