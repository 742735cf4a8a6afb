"""Reading and writing the files of a bundle that may have been cut short or made by somebody hostile."""

import errno
import fcntl
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suite.spec import foreign
from suite.spec.base import UsageError
from suite.spec.base import first_line as first_line
from suite.spec.names import repeated

DEPTH = 24
_MOST_INTEGER = 1 << 64


class DamagedBundle(Exception):
    """A bundle that cannot be trusted; the message is one line: file, line where there is one, what is wrong."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what the file system refuses (permission, full disk, a file in the way) into a UsageError."""
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "; free some and run the same command again" if is_full else ""
        raise UsageError(f"cannot write {path}: {(error.strerror or str(error)).lower()}{advice}") from error


def write_synced(path: Path, content: str | bytes) -> None:
    """Write a new file and force it to disk. Raises OSError, FileExistsError among them."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())


def locked(path: Path, flags: int, wait: bool = False) -> int:
    """Descriptor of a file or folder, opened with ``flags``, that this process alone holds until it is closed.

    Raises OSError, for a link too, BlockingIOError where somebody else holds it and it is not waited for.
    """
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_atomically(path: Path, text: str) -> None:
    """A reader sees the old text or the new one, never a part. Raises UsageError when it cannot be written."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with writing(path):
        try:
            draft.unlink(missing_ok=True)  # of a process of this number that was killed
            write_synced(draft, text)
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


@contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except foreign.Unreadable as error:
        raise DamagedBundle(str(error)) from error


#: As ``suite.spec.foreign`` has them, of files of a bundle: each raises DamagedBundle where a file is no regular one,
#: too long or no text, and FileNotFoundError where it is not there.
open_plain = _damage()(foreign.open_plain)
read_bytes = _damage()(foreign.read_bytes)
read_text = _damage()(foreign.read_text)
text_of = _damage()(foreign.text_of)


def parse_object(text: str, where: str) -> dict:
    """A JSON object, without NaN, Infinity or a name given twice. Raises DamagedBundle."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise DamagedBundle(f"{where} is not JSON: {error.msg.removesuffix(' at')} at column {error.colno}") from error
    except ValueError as error:  # a number of thousands of digits
        raise DamagedBundle(f"{where} is not usable JSON: {error}") from error
    except RecursionError as error:
        raise DamagedBundle(f"{where} is nested too deeply") from error
    if type(value) is not dict:
        raise DamagedBundle(f"{where} is not a JSON object")
    return value


def check_tree(value: Any, where: str) -> None:
    """Free-form facts must be storable again: shallow, finite, and text that is Unicode. Raises DamagedBundle."""
    level, depth = [value], 0
    while level:
        inside: list[Any] = []
        for part in level:
            kind = type(part)
            if kind is dict or kind is list:
                if depth == DEPTH:
                    raise DamagedBundle(f"{where} is nested more than {DEPTH} levels deep")
                inside += part
                if kind is dict:
                    inside += part.values()
            elif kind is int or kind is float:
                if not -_MOST_INTEGER < part < _MOST_INTEGER and (kind is int or not math.isfinite(part)):
                    raise DamagedBundle(f"{where} holds a number too large to read")
            elif kind is str and not part.isascii() and any("\ud800" <= char <= "\udfff" for char in part):
                # half of a surrogate pair, which JSON can spell and UTF-8 cannot
                raise DamagedBundle(f"{where} holds text that is not Unicode")
        level, depth = inside, depth + 1


def no_constant(name: str) -> float:
    """For ``json``, which would read NaN and Infinity."""
    raise ValueError(f"{name} is not a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"{ascii(repeated(name for name, _ in pairs))[:40]} is given twice")
    return found


_DECODER = json.JSONDecoder(parse_constant=no_constant, object_pairs_hook=_unique)
