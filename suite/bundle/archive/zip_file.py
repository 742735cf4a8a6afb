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
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from suite.bundle.archive.index import (
    INDEX,
    INDEX_BYTES,
    SIGNATURE,
    SIGNATURE_BYTES,
    Index,
    PackedFile,
    UnsafeArchive,
    parse_index,
    require_names,
    shown_name,
)
from suite.spec.foreign import open_plain

#: More than any results folder has; what is beyond is not read.
MOST_FILES, MOST_BYTES, MOST_FILE_BYTES = 200_000, 16 << 30, 1900 << 20
_MOST_DIRECTORY_BYTES = 96 << 20
#: Of a long entry, bytes for each that is packed: text of a run has 5 to 50, a bomb 1,000.
MOST_RATIO, _LONG_BYTES = 200, 1 << 20
_BLOCK_BYTES = 1 << 18
_TIME = (1980, 1, 1, 0, 0, 0)
#: What ``zipfile`` raises of hostile bytes; newer versions more often its own error.
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, struct.error, ValueError, OSError, OverflowError)


def add_file(archive: zipfile.ZipFile, name: str, content: bytes | Path) -> None:
    """Bytes, or a regular file as it is now, with the same time and permissions as any. What packs so well that a
    reader would take it for a bomb is stored. Raises as ``open_content``."""
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


class _Bounded(io.BufferedReader):
    """A file of which nothing is read at once that is longer than any directory."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > _MOST_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"its directory has more than the {_MOST_DIRECTORY_BYTES} bytes that are read")
        return super().read(size)


class _Tail(io.BytesIO):
    """What stands in a file from a place on."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self._start = start

    def tell(self) -> int:
        return self._start + super().tell()

    def seek(self, place: int, whence: int = 0, /) -> int:
        return super().seek(place - self._start, whence)


class Reader:
    """An archive that is open: its index, and its files where they fit the index."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        """``name``: what messages call it. Raises UnsafeArchive."""
        self._file, self.name = _Bounded(io.FileIO(file.fileno(), closefd=False)), name
        with self._refusing():
            self._zip = zipfile.ZipFile(self._file)
            self._check_form()
            self.index_bytes = self._small(INDEX, INDEX_BYTES)
            self.signature = self._small(SIGNATURE, SIGNATURE_BYTES) if SIGNATURE in self._zip.namelist() else None
        self.index: Index = parse_index(self.index_bytes, name)
        self.index_sha256 = hashlib.sha256(self.index_bytes).hexdigest()
        listed = Counter((packed.path, packed.bytes) for packed in self.index.files)
        found = {(info.filename, info.file_size) for info in self._zip.infolist()}
        listed.subtract(one for one in found if one[0] not in (INDEX, SIGNATURE))
        for path, _ in sorted(one for one, count in listed.items() if count):
            raise UnsafeArchive(f"{name}: {shown_name(path)} is not what the index says")

    def content(self, packed: PackedFile) -> Iterator[bytes]:
        """Of a file, a block at a time. Raises UnsafeArchive where it is not what the index says."""
        found, left = hashlib.sha256(), packed.bytes
        with self._refusing(), self._zip.open(packed.path) as source:
            while data := source.read(_BLOCK_BYTES):
                found.update(data)
                left -= len(data)
                if left < 0:
                    break
                yield data
        if left or found.hexdigest() != packed.sha256:
            raise UnsafeArchive(f"{self.name}: {shown_name(packed.path)} is not what the index says")

    def _small(self, name: str, most: int) -> bytes:
        if name not in self._zip.namelist():
            raise UnsafeArchive(f"{self.name} has no {INDEX}: it is no archive of suite pack")
        size = self._zip.getinfo(name).file_size
        if size > most:
            raise UnsafeArchive(f"{self.name}: {name} has {size} bytes, more than the {most} that are read")
        return self._zip.read(name)

    def _check_form(self) -> None:
        """Regular files of a size that can be, one after the other, and their directory, all as they are written."""
        infos, own, at = self._zip.infolist(), [], 0
        require_names((info.orig_filename for info in infos), self.name)
        for info in infos:
            if info.file_size > min(MOST_FILE_BYTES, max(_LONG_BYTES, MOST_RATIO * info.compress_size)):
                why = f"would unpack to {info.file_size} bytes from {info.compress_size}: it is taken for a bomb"
                raise UnsafeArchive(f"{self.name}: {shown_name(info.filename)} {why}")
            known = _entry(info.orig_filename)
            known.CRC, known.compress_type, known.header_offset = info.CRC, info.compress_type, at
            known.compress_size, known.file_size = info.compress_size, info.file_size
            head = known.FileHeader()
            self._file.seek(at)
            is_packed = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            is_regular = info.external_attr == known.external_attr and info.header_offset == at
            if not (is_packed and is_regular and self._file.read(len(head)) == head):
                why = "is not a regular file in the form that suite pack writes"
                raise UnsafeArchive(f"{self.name}: {shown_name(info.filename)} {why}")
            own.append(known)
            at += len(head) + info.compress_size
        tail = _Tail(at)
        with zipfile.ZipFile(tail, "w") as written:
            written.filelist += own
        self._file.seek(at)
        if self._file.read(len(tail.getvalue()) + 1) != tail.getvalue():
            raise UnsafeArchive(f"{self.name} is no archive of suite pack, or damaged: it does not end as one")
        total = sum(info.file_size for info in infos)
        if len(infos) > MOST_FILES or total > MOST_BYTES:
            raise UnsafeArchive(
                f"{self.name} holds {len(infos)} files of {total} bytes, more than the {MOST_FILES} and {MOST_BYTES} "
                "that are read"
            )

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except UnsafeArchive:
            raise
        except _BROKEN as error:
            why = " ".join(str(error).split())[:120]
            raise UnsafeArchive(f"{self.name} is no archive of suite pack, or damaged: {why}") from error
