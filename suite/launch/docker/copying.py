"""Bundles for a container runtime that does not see this host's folders: put in before the run, taken back after it."""

import io
import os
import re
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from docker import APIClient

from suite.launch.job import RUNS
from suite.spec.foreign import read_bytes

MANIFEST = "manifest.json"
MOST_FILES = 100_000
MOST_BYTES = 8 << 30
#: the files that ranks write; what the driver itself writes beside them is never taken from a container
_RANK_FILE = re.compile(r"(events|logs)/(rank-\d{1,7}\.(jsonl|log))")


class UnsafeCopy(Exception):
    """The archive holds more than a bundle's files can be; what was taken before it stays."""


def put_bundle(api: APIClient, container: str, run: str, folder: Path, user: str) -> None:
    """Put ``run``'s folder with its manifest and empty ``events`` and ``logs`` into a container, owned by ``user``."""
    owner, group = (int(number) for number in user.split(":"))
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in (run, f"{run}/events", f"{run}/logs"):
            tar.addfile(_entry(name, owner, group, is_folder=True))
        data = read_bytes(folder / MANIFEST, MANIFEST)
        tar.addfile(_entry(f"{run}/{MANIFEST}", owner, group, size=len(data)), io.BytesIO(data))
    api.put_archive(container, RUNS, archive.getvalue())


def take_bundle(api: APIClient, container: str, run: str, folder: Path) -> None:
    """Copy the ranks' events and logs out of a container. Raises UnsafeCopy, and what runtime and disk raise."""
    for name in ("events", "logs"):
        pieces, _ = api.get_archive(container, f"{RUNS}/{run}/{name}")
        extract(pieces, folder / name)


def extract(pieces: Iterable[bytes], target: Path) -> None:
    """Write the ranks' files of a tar stream that are not in ``target`` yet, and nothing else: no other name, no link,
    no device. Raises UnsafeCopy beyond 100 000 entries or 8 GiB, and for what is no archive."""
    files, total = 0, 0
    try:
        with tarfile.open(fileobj=_Pieces(pieces), mode="r|") as tar:
            for member in tar:
                files, total = files + 1, total + max(member.size, 0)
                if files > MOST_FILES or total > MOST_BYTES:
                    raise UnsafeCopy(f"the container's folder holds more than {MOST_FILES} files or {MOST_BYTES} bytes")
                match = _RANK_FILE.fullmatch(member.name)
                if member.isreg() and match and match.group(1) == target.name:
                    source = tar.extractfile(member)
                    assert source is not None, "a regular file has content"
                    _write(target / match.group(2), source)
    except (tarfile.TarError, EOFError) as error:
        raise UnsafeCopy(f"what came of the container's folder is no archive: {str(error)[:200]}") from error


def _write(path: Path, source: IO[bytes]) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "wb") as file:
        while data := source.read(1 << 20):
            file.write(data)


def _entry(name: str, owner: int, group: int, size: int = 0, is_folder: bool = False) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.uid, entry.gid, entry.size = owner, group, size
    entry.type, entry.mode = (tarfile.DIRTYPE, 0o755) if is_folder else (tarfile.REGTYPE, 0o644)
    return entry


class _Pieces(io.RawIOBase):
    """A stream of bytes as the file that tarfile reads, which takes more bytes than it asked for."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = filter(None, pieces)

    def read(self, size: int = -1) -> bytes:
        return next(self._pieces, b"")
