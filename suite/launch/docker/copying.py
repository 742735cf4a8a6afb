"""Bundles for a container runtime that does not see this host's folders: put in before the run, taken back after it."""

import io
import re
import shutil
import tarfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from docker import APIClient

from suite.launch.job import RUNS

MOST_FILES = 100_000
MOST_BYTES = 8 << 30
#: the files that ranks write; what the driver itself writes beside them is never taken from a container
_RANK_FILE = re.compile(r"(events|logs)/(rank-\d{1,7}\.(jsonl|log))")


class UnsafeCopy(Exception):
    """The archive holds more than a bundle's files can be; what was taken before it stays."""


def put_bundle(api: APIClient, container: str, run: str, folder: Path, user: str) -> None:
    """Put ``run``'s folder with its manifest and empty ``events`` and ``logs`` into a container, owned by ``user``."""

    def owned(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid, entry.gid = map(int, user.split(":"))
        return entry

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("", "events", "logs", "manifest.json"):
            tar.add(folder / name, f"{run}/{name}", recursive=False, filter=owned)
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
                    with suppress(FileExistsError), (target / match.group(2)).open("xb") as file:
                        shutil.copyfileobj(source, file)
    except (tarfile.TarError, EOFError) as error:
        raise UnsafeCopy(f"what came of the container's folder is no archive: {str(error)[:200]}") from error


class _Pieces(io.RawIOBase):
    """A stream of bytes as the file that tarfile reads, which takes more bytes than it asked for."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = filter(None, pieces)

    def read(self, size: int = -1) -> bytes:
        return next(self._pieces, b"")
