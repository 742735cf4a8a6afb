"""The one way to open files that others wrote, who may leave a pipe, a device, a link out of the folder, or a file
without end in their place: only regular files are opened, none is waited for, no more is read than was agreed, and a
link is followed only where the user named it."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from suite.spec.base import UsageError

#: A manifest, a submission or a table; the events of a rank; one line of a file that is read by lines.
DOCUMENT_BYTES = 16 << 20
EVENTS_BYTES = 64 << 20
LINE_BYTES = 1 << 20

_ALWAYS = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Unreadable(UsageError):
    """A file that is not opened; the message is one line, what the file is called and what is wrong with it."""


def open_plain(path: Path | str, name: str, limit_bytes: int | None, *, by_user: bool = False) -> BinaryIO:
    """Open a regular file to read it. ``name``: what messages call it. ``limit_bytes``: null to read a part of it.
    ``by_user``: the user named it, who may mean a link. Raises Unreadable when it is something else, too long, refused,
    or not there although the user named it; FileNotFoundError for another that is not there."""
    try:
        descriptor = _opened(path, name, os.O_RDONLY | (0 if by_user else os.O_NOFOLLOW))
    except FileNotFoundError as error:
        if by_user:
            raise Unreadable(f"there is no file {name}") from error
        raise
    except OSError as error:
        raise Unreadable(f"{name} cannot be read: {_why(error)}") from error
    size = os.fstat(descriptor).st_size
    if limit_bytes is not None and size > limit_bytes:
        os.close(descriptor)
        raise Unreadable(f"{name} has {size} bytes, more than the {limit_bytes} that are read")
    return os.fdopen(descriptor, "rb")


def open_log(path: Path, name: str) -> int:
    """A descriptor that appends to a file, made where it is not there. Raises OSError, and Unreadable for no file."""
    descriptor = _opened(path, name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW)
    os.set_blocking(descriptor, True)  # a rank may inherit it
    return descriptor


def open_plain_to_change(path: Path, name: str) -> int:
    """A descriptor to read and to write a file that is there. Raises OSError, and Unreadable for no file."""
    return _opened(path, name, os.O_RDWR | os.O_NOFOLLOW)


def read_bytes(path: Path | str, name: str, limit_bytes: int = DOCUMENT_BYTES, *, by_user: bool = False) -> bytes:
    """A whole file, also one that grows meanwhile. Raises as ``open_plain``."""
    with open_plain(path, name, limit_bytes, by_user=by_user) as file:
        try:
            # room for as much as there is, not for as much as there may be
            known = min(os.fstat(file.fileno()).st_size, limit_bytes)
            data = file.read(known + 1)
            if len(data) > known:  # it grew
                data += file.read(limit_bytes + 1 - len(data))
        except OSError as error:
            raise Unreadable(f"{name} cannot be read: {_why(error)}") from error
    if len(data) > limit_bytes:
        raise Unreadable(f"{name} grows beyond the {limit_bytes} bytes that are read")
    return data


def read_text(path: Path, name: str, limit_bytes: int = DOCUMENT_BYTES, *, by_user: bool = False) -> str:
    """A whole file of UTF-8 text. Raises as ``open_plain``."""
    return text_of(read_bytes(path, name, limit_bytes, by_user=by_user), name)


def text_of(data: bytes, name: str) -> str:
    """Raises Unreadable where it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name} is not UTF-8 text at byte {error.start}") from error


def read_part(path: Path, name: str, first: int, most: int) -> bytes:
    """At most so many bytes from byte ``first`` on, from the end where that is negative. Raises as ``open_plain``."""
    with open_plain(path, name, None) as file:
        try:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size + first, 0) if first < 0 else first)
            return file.read(most)
        except OSError as error:
            raise Unreadable(f"{name} cannot be read: {_why(error)}") from error


def lines_of(file: BinaryIO, longest: int = LINE_BYTES) -> Iterator[bytes]:
    """The lines of an open file with their ends; a longer one comes in pieces, so that memory stays bounded."""
    while line := file.readline(longest):
        yield line


def _opened(path: Path | str, name: str, flags: int) -> int:
    try:
        descriptor = os.open(path, flags | _ALWAYS, 0o666)
    except ValueError as error:
        raise Unreadable(f"{name!a} is not a path: {error}") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise Unreadable(f"{name} is a symbolic link") from error
        if error.errno in (errno.ENXIO, errno.EISDIR):  # a pipe that nobody reads, a socket, a folder
            raise Unreadable(f"{name} is not a regular file") from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unreadable(f"{name} is not a regular file")
    return descriptor


def _why(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
