"""Archives where folders are read: unpacked into a folder of this process alone, for as long as they are read.

Whoever reads paths of a user asks ``opened`` for them and reads its ``folders``. What is said of a bundle there names
a temporary folder; ``shown`` puts the archive's own name in its place, so that reports are the same every time.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite.bundle.archive.index import RUNS, scrubbed_line, shown_name
from suite.bundle.archive.signature import Signature
from suite.bundle.archive.zip_file import Reader
from suite.bundle.cache.survey import Surveyed
from suite.bundle.drafts import draft_folder
from suite.bundle.files import writing
from suite.spec.base import UsageError
from suite.spec.foreign import open_plain

_SUFFIX = ".zip"
_NAMED = 3


#: Archives that this process has unpacked at the moment, by the real paths of their files.
_open: dict[str, Reader] = {}


@dataclass(frozen=True)
class Opened:
    """Paths as they can be read. ``folders``: in the order in which they were given, archives unpacked."""

    folders: tuple[Path, ...]
    archives: tuple[Reader, ...] = ()

    def shown(self, text: str) -> str:
        """With the names of archives where a text has those of temporary folders."""
        for archive in self.archives:
            text = text.replace(f"{archive.runs}/", f"{archive.name}:").replace(str(archive.runs), archive.name)
        return text

    def holds(self, bundle: Surveyed) -> bool:
        """Whether a bundle is of an archive, so that nobody else can change it."""
        return bool(self.archives) and self.archive_of(Path(bundle.path)) is not None

    def archive_of(self, path: Path) -> Reader | None:
        """The archive that a bundle lies in; null for one of a folder."""
        return next((archive for archive in self.archives if path.is_relative_to(archive.runs)), None)


@contextmanager
def opened(paths: Iterable[Path]) -> Iterator[Opened]:
    """Folders as they are, and archives (``FILE.zip``, or ``FILE.zip:RUN`` for one run) unpacked meanwhile; one that is
    open already is not unpacked again.

    Raises UsageError for an archive that is none or not what was packed, and where there is no such run.
    """
    folders: list[Path] = []
    archives: dict[str, Reader] = {}
    with ExitStack() as until_end:
        for path in paths:
            split = _archive_and_run(path)
            if split is None:
                folders.append(path)
                continue
            file, run = split
            real = os.path.realpath(file)
            if real not in archives:
                archives[real] = _open.get(real) or until_end.enter_context(_unpacked(file, real))
            folders.append(_place(archives[real], run))
        yield Opened(tuple(folders), tuple(archives.values()))


def bundle_place(shown: str) -> Path:
    """Where a bundle lies that a report shows by this path: in an archive while that is ``opened``, else there."""
    for archive in _open.values():
        if shown.startswith(f"{archive.name}:"):
            return archive.runs / shown.removeprefix(f"{archive.name}:")
    return Path(shown)


def _archive_and_run(path: Path) -> tuple[Path, str] | None:
    """The file and the run that a path names; an empty run for all. Null for what is no archive."""
    if path.suffix == _SUFFIX and path.is_file():
        return path, ""
    name, mark, run = str(path).partition(f"{_SUFFIX}:")
    file = Path(f"{name}{_SUFFIX}")
    return (file, run.strip("/")) if mark and file.is_file() else None


def _place(archive: Reader, run: str) -> Path:
    """Of all runs the results folder; of an archive of one bundle, that bundle."""
    index = archive.index
    found = [each for each in index.runs if run in (each.path, each.id)] if run else index.runs
    if len(found) == 1 and (run or index.packed == "bundle"):
        return archive.runs / found[0].path
    if not run:
        return archive.runs
    some = ", ".join(each.path for each in (found or index.runs)[:_NAMED])
    count = f"{len(found)} runs" if found else "no run"
    raise UsageError(f"{archive.name} has {count} {shown_name(run)}; it has {some}")


@contextmanager
def _unpacked(path: Path, real: str) -> Iterator[Reader]:
    """Into a folder that nobody else can read, and that is gone afterwards."""
    with read_archive(path) as reader, tempfile.TemporaryDirectory(prefix="suite-archive-") as place:
        root = Path(os.path.realpath(place))
        unpack_into(reader, root)
        reader.runs, _open[real] = root / RUNS, reader
        try:
            yield reader
        finally:
            del _open[real]


@contextmanager
def read_archive(path: Path) -> Iterator[Reader]:
    """An archive whose form, names and index are in order. Raises UsageError."""
    with open_plain(path, str(path), None, by_user=True) as file:
        yield Reader(file, str(path))


def unpack_into(reader: Reader, root: Path) -> None:
    """Write its files below ``root``, an empty folder. Raises UsageError, at a file that is not what was packed."""
    total = sum(file.bytes for file in reader.index.files)
    free = shutil.disk_usage(root).free
    if total > free:
        raise UsageError(f"{reader.name} has {total} bytes unpacked, and {root.parent} has {free} left")
    (root / RUNS).mkdir()
    for packed in reader.index.files:
        place = root / packed.path
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("xb") as file:
            file.writelines(reader.content(packed))


def unpack_archive(reader: Reader, output: Path) -> None:
    """Make ``output`` the archive's content, whole or not at all. Raises UsageError."""
    if os.path.lexists(output):
        raise UsageError(f"{output} exists; nothing is overwritten: name another folder with --output")
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(output, mode=0o755) as draft:
            unpack_into(reader, draft)
            draft.rename(output)


def archive_lines(archive: Reader, signature: Signature) -> list[str]:
    """For `suite verify` and `suite unpack`: what it is, what its packer says was scrubbed, who signed it."""
    index = archive.index
    return [
        f"{archive.name}: {len(index.files)} files as its index says (sha256 {archive.index_sha256}), packed by suite "
        f"{index.suite_version}",
        f" {scrubbed_line(index)}",
        f" signature: {signature.line()}",
        *(f" left out by the packer: {left.path}: {left.reason}" for left in index.left_out),
    ]


def archive_facts(archive: Reader, signature: Signature) -> dict[str, Any]:
    return {
        "file": archive.name,
        "index_sha256": archive.index_sha256,
        "files": len(archive.index.files),
        "runs": len(archive.index.runs),
        **archive.index.model_dump(mode="json", by_alias=True, exclude={"files", "runs"}),
        "signature": signature.model_dump(mode="json"),
    }
