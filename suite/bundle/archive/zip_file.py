"""Archives as ZIP files of one narrow form: the same bytes for the same content, and nothing in them but files.

The form is what ``ZipFile`` writes of regular files without comments and padding. A file in any other form was not
written by `suite pack`, and is refused before anything of it is unpacked: every byte belongs to one entry or to the
directory at the end, so that nothing can hide between entries or be read in two ways.
"""

import hashlib
import io
import os
import shutil
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, BinaryIO

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
_UTF8, _ZIP64 = 0x800, 1
_END, _END_64, _LOCATOR = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
_LOCAL = struct.Struct("<4s5H3L2H")
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, struct.error, ValueError)


def add_file(archive: zipfile.ZipFile, name: str, content: bytes | Path) -> None:
    """Bytes, or a regular file as it is now, with the same time and permissions as any. What packs so well that a
    reader would take it for a bomb is stored. Raises as ``open_content``."""
    info = zipfile.ZipInfo(name, _TIME)
    info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
    with open_content(content, name) as source:
        info.file_size = source.seek(0, os.SEEK_END)
        info.compress_type = zipfile.ZIP_STORED if _is_too_even(source, info.file_size) else zipfile.ZIP_DEFLATED
        source.seek(0)
        with archive.open(info, "w") as target:
            shutil.copyfileobj(source, target, _BLOCK_BYTES)


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
        """``name``: what messages call it. Raises UnsafeArchive."""
        self._file, self.name = file, name
        self.size = file.seek(0, 2)
        with self._refusing():
            count = _require_whole(file, self.size, name)
            self._zip = zipfile.ZipFile(file)
            self._entries = {info.filename: info for info in self._zip.infolist()}
            if len(self._entries) != count or len(self._zip.infolist()) != count:
                raise UnsafeArchive(f"{name} holds a name twice")
            self._check_entries()
            self.index_bytes = self._small(INDEX, INDEX_BYTES)
            self.signature = self._small(SIGNATURE, SIGNATURE_BYTES) if SIGNATURE in self._entries else None
        self.index: Index = parse_index(self.index_bytes, name)
        self._check_index()

    @property
    def index_sha256(self) -> str:
        return hashlib.sha256(self.index_bytes).hexdigest()

    def files(self) -> Iterator[tuple[PackedFile, Iterator[bytes]]]:
        """Each file with its content, a block at a time, which must be read to its end before the next.

        Raises UnsafeArchive there where content is not what the index says.
        """
        for packed in self.index.files:
            yield packed, self._content(packed)

    def _content(self, packed: PackedFile) -> Iterator[bytes]:
        found, left = hashlib.sha256(), packed.bytes
        with self._refusing(), self._zip.open(self._entries[packed.path]) as source:
            while data := source.read(_BLOCK_BYTES):
                found.update(data)
                left -= len(data)
                if left < 0:
                    break
                yield data
        if left or found.hexdigest() != packed.sha256:
            raise UnsafeArchive(f"{self.name}: {shown_name(packed.path)} is not what the index says")

    def _small(self, name: str, most: int) -> bytes:
        info = self._entries.get(name)
        if info is None:
            raise UnsafeArchive(f"{self.name} has no {INDEX}: it is no archive of suite pack")
        if info.file_size > most:
            raise UnsafeArchive(f"{self.name}: {name} has {info.file_size} bytes, more than the {most} that are read")
        return self._zip.read(info)

    def _check_entries(self) -> None:
        """Regular files, at their place, of a size that can be."""
        infos, total, at = self._zip.infolist(), 0, 0
        require_names((info.orig_filename for info in infos), self.name)
        for info in sorted(infos, key=lambda each: each.header_offset):
            wrong = _wrong_entry(info)
            if wrong is not None:
                raise UnsafeArchive(f"{self.name}: {shown_name(info.filename)} {wrong}")
            at = self._end_of(info, at)
            total += info.file_size
        if at != self._zip.start_dir:
            raise UnsafeArchive(f"{self.name} holds bytes that belong to none of its files")
        if total > MOST_BYTES:
            raise UnsafeArchive(f"{self.name} would unpack to {total} bytes, more than the {MOST_BYTES} that are read")

    def _end_of(self, info: zipfile.ZipInfo, at: int) -> int:
        """Where the entry at ``at`` ends, by its own header, which must be what the directory says."""
        self._file.seek(at)
        head = _LOCAL.unpack(self._file.read(_LOCAL.size))
        named, extra = self._file.read(head[9]), head[10]
        known = (head[0], head[2], head[3], head[6], head[7], head[8])
        said = (b"PK\3\4", info.flag_bits, info.compress_type, info.CRC, info.compress_size, info.file_size)
        if info.header_offset != at or extra or known != said or named != info.orig_filename.encode():
            raise UnsafeArchive(f"{self.name}: {shown_name(info.filename)} is told in two ways, or overlaps another")
        return at + _LOCAL.size + head[9] + info.compress_size

    def _check_index(self) -> None:
        sizes = {file.path: file.bytes for file in self.index.files}
        there = self._entries.keys() - {INDEX, SIGNATURE}
        for foreign in sorted(there - sizes.keys()):
            raise UnsafeArchive(f"{self.name} holds {shown_name(foreign)}, which its index does not name")
        for gone in sorted(sizes.keys() - there):
            raise UnsafeArchive(f"{self.name} has no {shown_name(gone)}, which its index names")
        for path, size in sizes.items():
            if self._entries[path].file_size != size:
                raise UnsafeArchive(f"{self.name}: {shown_name(path)} is not what the index says")

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except UnsafeArchive:
            raise
        except _BROKEN as error:
            why = " ".join(str(error).split())[:120]
            raise UnsafeArchive(f"{self.name} is no archive of suite pack, or damaged: {why}") from error


def _require_whole(file: BinaryIO, size: int, name: str) -> int:
    """How many entries the directory has, which ends the file. Raises UnsafeArchive before anything large is read."""
    cut = UnsafeArchive(f"{name} is no archive of suite pack, or was cut short: it does not end as one")
    if size < _END.size:
        raise UnsafeArchive(f"{name} is no archive of suite pack: it has {size} bytes")
    end = size - _END.size
    mark, disk, first, here, count, length, offset, comment = _END.unpack(_at(file, end, _END.size))
    if mark != b"PK\5\6" or disk or first or here != count or comment:
        raise cut
    if 0xFFFF in (count, here) or 0xFFFFFFFF in (length, offset):
        if end < _LOCATOR.size + _END_64.size:
            raise cut
        mark, _, end_64, _ = _LOCATOR.unpack(_at(file, end - _LOCATOR.size, _LOCATOR.size))
        end -= _LOCATOR.size + _END_64.size
        found = _END_64.unpack(_at(file, end, _END_64.size))
        count, length, offset = found[7], found[8], found[9]
        if mark != b"PK\6\7" or end_64 != end or found[0] != b"PK\6\6" or found[1] != _END_64.size - 12:
            raise cut
    if count > MOST_FILES or length > _MOST_DIRECTORY_BYTES:
        raise UnsafeArchive(f"{name} holds {count} files, more than the {MOST_FILES} that are read")
    if offset + length != end:
        raise UnsafeArchive(f"{name} holds bytes that belong to none of its files")
    return int(count)


def _at(file: IO[bytes], place: int, length: int) -> bytes:
    file.seek(place)
    return file.read(length)


def _wrong_entry(info: zipfile.ZipInfo) -> str | None:
    """Why an entry is none that `suite pack` writes, in words that follow its name; null where it is."""
    kind = stat.S_IFMT(info.external_attr >> 16)
    if info.flag_bits & 0x2041:
        return "is encrypted"
    if info.is_dir() or info.external_attr & 0x10 or kind == stat.S_IFDIR:
        return "is a folder"
    if kind not in (0, stat.S_IFREG):
        return "is a link" if kind == stat.S_IFLNK else "is not a regular file"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "is packed in a way that suite pack does not use"
    plain = info.orig_filename.isascii()
    if info.flag_bits != (0 if plain else _UTF8) or info.orig_filename != info.filename or info.comment:
        return "is told in a way that suite pack does not use"
    if info.extra and (struct.unpack("<H", info.extra[:2])[0] != _ZIP64 or len(info.extra) > 28):
        return "is told in a way that suite pack does not use"
    if info.file_size > MOST_FILE_BYTES:
        return f"has {info.file_size} bytes, more than the {MOST_FILE_BYTES} that are read"
    if info.file_size > _LONG_BYTES and info.file_size > MOST_RATIO * info.compress_size:
        return f"would unpack to {info.file_size} bytes from {info.compress_size}: it is taken for a bomb"
    if info.compress_type == zipfile.ZIP_STORED and info.file_size != info.compress_size:
        return "is told in two ways"
    return None
