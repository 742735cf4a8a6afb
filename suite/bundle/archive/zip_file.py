"""Archives as ZIP files of one narrow form: the same bytes for the same content, and nothing in them but files.

The form is what ``ZipFile`` writes of regular files without comments and padding. A file in any other form was not
written by `suite pack`, and is refused before anything of it is unpacked: every byte but those of files' contents is
the one that would be written again, so that nothing can hide between entries or be read in two ways.
"""

import hashlib
import io
import os
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from suite.bundle.archive.index import INDEX, RUNS, SIGNATURE, PackedFile, parse_index, require_names, shown_name
from suite.spec.base import UsageError
from suite.spec.foreign import open_plain

#: More than any results folder has; what is beyond is not read.
MOST_FILES, MOST_BYTES, MOST_FILE_BYTES = 200_000, 16 << 30, 1900 << 20
_INDEX_BYTES, _SIGNATURE_BYTES = 64 << 20, 64 << 10
#: Of a long entry, bytes for each that is packed: text of a run has 5 to 50, a bomb 1,000.
MOST_RATIO, _LONG_BYTES = 200, 1 << 20
_BLOCK_BYTES = 1 << 18
_TIME = (1980, 1, 1, 0, 0, 0)
#: What stands before the name of an entry.
_HEAD = struct.Struct("<4s5H3L2H")
#: What is raised of hostile bytes.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError)


def write_archive(path: Path, index: bytes, signature: bytes | None, files: Mapping[str, bytes | Path]) -> None:
    """A new file: the index, its signature, and the files in the order of their names. Raises as ``open_content``."""
    with zipfile.ZipFile(path, "x") as archive:
        _add(archive, INDEX, index)
        if signature is not None:
            _add(archive, SIGNATURE, signature)
        for name in sorted(files, key=str.encode):
            _add(archive, name, files[name])


def _add(archive: zipfile.ZipFile, name: str, content: bytes | Path) -> None:
    """Bytes, or a regular file as it is now, with the same time and permissions as any. What packs so well that a
    reader would take it for a bomb is stored."""
    info = _entry(name)
    with open_content(content, name) as source:
        info.file_size = source.seek(0, os.SEEK_END)
        info.compress_type = zipfile.ZIP_STORED if _is_too_even(source, info.file_size) else zipfile.ZIP_DEFLATED
        source.seek(0)
        with archive.open(info, "w") as target:
            shutil.copyfileobj(source, target, _BLOCK_BYTES)


def _entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _TIME)
    info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
    return info


def open_content(content: bytes | Path, name: str) -> BinaryIO:
    """Raises OSError, and FileNotFoundError or Unreadable for a file that is none."""
    return io.BytesIO(content) if isinstance(content, bytes) else open_plain(content, name, MOST_FILE_BYTES)


def _is_too_even(source: BinaryIO, size: int) -> bool:
    if size <= _LONG_BYTES:
        return False
    packer, packed = zlib.compressobj(6, zlib.DEFLATED, -15), 0
    source.seek(0)
    while data := source.read(_BLOCK_BYTES):
        packed += len(packer.compress(data))
    return size > (packed + len(packer.flush())) * MOST_RATIO // 2


class Reader:
    """An archive that is open: its index, and its files where they fit the index."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """``name``: as the user gave it. Raises UsageError."""
        self._file, self.name = file, name
        #: Where its results folder is, from when it is unpacked on.
        self.runs = Path(RUNS)
        with self._refusing():
            self._entries = self._checked_entries()
            self.index_bytes = self._small(INDEX, _INDEX_BYTES)
            self.signature = self._small(SIGNATURE, _SIGNATURE_BYTES) if SIGNATURE in self._entries else None
        self.index = parse_index(self.index_bytes, name)
        self.index_sha256 = hashlib.sha256(self.index_bytes).hexdigest()
        listed = Counter((packed.path, packed.bytes) for packed in self.index.files)
        found = {(path, info.file_size) for path, info in self._entries.items()}
        listed.subtract(one for one in found if one[0] not in (INDEX, SIGNATURE))
        for path, _ in sorted(one for one, count in listed.items() if count):
            raise self._refused(path, "is not what the index says")

    def content(self, packed: PackedFile) -> Iterator[bytes]:
        """Of a file, a block at a time. Raises UsageError where it is not what the index says."""
        found = hashlib.sha256()
        for data in self._blocks(packed.path):
            found.update(data)
            yield data
        if found.hexdigest() != packed.sha256:
            raise self._refused(packed.path, "is not what the index says")

    def _blocks(self, path: str) -> Iterator[bytes]:
        """As many bytes as its entry says that it has, or fewer."""
        info = self._entries[path]
        self._file.seek(info.header_offset + len(info.FileHeader()))
        with self._refusing(), zipfile.ZipExtFile(self._file, "r", info) as source:
            while data := source.read(_BLOCK_BYTES):
                yield data

    def _small(self, path: str, most: int) -> bytes:
        if path not in self._entries:
            raise UsageError(f"{self.name} has no {INDEX}: it is no archive of suite pack")
        size = self._entries[path].file_size
        if size > most:
            raise self._refused(path, f"has {size} bytes, more than the {most} that are read")
        return b"".join(self._blocks(path))

    def _checked_entries(self) -> dict[str, zipfile.ZipInfo]:
        """Regular files of a size that can be, one after the other, and their directory, all as they are written."""
        infos: list[zipfile.ZipInfo] = []
        at = total = 0
        while (head := self._file.read(_HEAD.size))[:4] == b"PK\3\4" and len(head) == _HEAD.size:
            _, _, _, method, _, _, crc, packed, size, length, _ = _HEAD.unpack(head)
            path = self._file.read(length).decode()
            if size > min(MOST_FILE_BYTES, max(_LONG_BYTES, MOST_RATIO * packed)):
                raise self._refused(path, f"would unpack to {size} bytes from {packed}: it is taken for a bomb")
            info = _entry(path)
            info.compress_type, info.CRC, info.compress_size, info.file_size = method, crc, packed, size
            is_packed = method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            if not is_packed or info.FileHeader() != head + path.encode():
                raise self._refused(path, "is not a regular file in the form that suite pack writes")
            info.header_offset, at, total = at, at + len(head) + length + packed, total + size
            infos.append(info)
            if len(infos) > MOST_FILES or total > MOST_BYTES:
                raise UsageError(
                    f"{self.name} holds more than the {MOST_FILES} files of {MOST_BYTES} bytes that are read"
                )
            self._file.seek(at)
        require_names((info.filename for info in infos), self.name)
        with tempfile.TemporaryFile() as written:
            written.seek(at)  # behind a hole in the place of the files
            with zipfile.ZipFile(written, "w") as archive:
                archive.filelist += infos
            written.seek(at)
            self._file.seek(at)
            end = written.read()
            if self._file.read(len(end) + 1) != end:
                raise UsageError(
                    f"{self.name} is no archive of suite pack, or damaged: it does not end as one with these files"
                )
        return {info.filename: info for info in infos}

    def _refused(self, path: str, why: str) -> UsageError:
        return UsageError(f"{self.name}: {shown_name(path)} {why}")

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except UsageError:
            raise
        except _BROKEN as error:
            why = " ".join(str(error).split())[:120]
            raise UsageError(f"{self.name} is no archive of suite pack, or damaged: {why}") from error
