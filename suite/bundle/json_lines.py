"""Files of one JSON object a line: at once where they are as the suite writes them, else line by line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from pydantic_core import from_json

from suite.bundle.files import DamagedBundle, parse_object
from suite.spec.foreign import LINE_BYTES

#: In a line with one of these, names are harder to count than ``plain_objects`` does.
_CAREFUL = (b"\\", b"\t", b"\r", b" :")
#: Shorter lines are first taken to have no object within their object.
_SHORT_BYTES = 256
_parse = partial(from_json, allow_inf_nan=False)


def objects(data: bytes, name: str, notes: list[str]) -> Iterator[dict[str, Any]]:
    """The object of each whole line. A last line that its writer did not finish is left out and noted.

    ``name`` is what messages call the file. Raises DamagedBundle for a line that is too long or no object.
    """
    lines = data.split(b"\n")
    rest = lines.pop()
    for number, line in enumerate(lines, start=1):
        if len(line) >= LINE_BYTES:
            raise _too_long(name, number)
        yield _object(line, f"{name} line {number}")
    if len(rest) > LINE_BYTES:
        raise _too_long(name, len(lines) + 1)
    if rest:
        notes.append(f"{name} line {len(lines) + 1} was cut short and left out")


def plain_objects(data: bytes) -> list[dict[str, Any]] | None:
    """As ``objects`` in a quarter of the time, without a note; null where there would be one, or damage.

    That no name is given twice is seen by their number: where there are no backslashes, and no spaces before colons,
    a name is followed by ``":`` at once, so that there are at least as many of these as names, and not more than the
    objects have names only if none was lost. Lines with such characters are read one by one.
    """
    lines = data.split(b"\n")
    lengths = list(map(len, lines))
    if lines.pop() or max(lengths) >= LINE_BYTES:
        return None
    careful = _careful(data, lines)
    try:
        if careful:
            found = [_object(line, "") if index in careful else _parse(line) for index, line in enumerate(lines)]
        else:
            found = list(map(_parse, lines))
    except (ValueError, DamagedBundle):
        return None
    if any(kind is not dict for kind in set(map(type, found))):
        return None
    wanted = data.count(b'":')
    for index in careful:
        wanted += _names_in(found[index]) - lines[index].count(b'":')
    names = sum(map(len, found))  # a part of all is enough where it is as many as there can be
    if names != wanted:
        long = [value for value, length in zip(found, lengths, strict=False) if length > _SHORT_BYTES]
        names += sum(map(_names_in, long)) - sum(map(len, long))
    if names != wanted:
        names = sum(map(_names_in, found))
    return found if names == wanted else None


def _careful(data: bytes, lines: list[bytes]) -> set[int]:
    """Which lines have characters that make names harder to count."""
    marks = [mark for mark in _CAREFUL if mark in data]
    return {index for index, line in enumerate(lines) if any(mark in line for mark in marks)} if marks else set()


def _too_long(name: str, number: int) -> DamagedBundle:
    return DamagedBundle(f"{name} line {number} is longer than {LINE_BYTES} bytes")


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        return parse_object(line.decode(), where)
    except UnicodeDecodeError as error:
        raise DamagedBundle(f"{where} is not UTF-8 text") from error


def _names_in(value: dict | list) -> int:
    is_object = type(value) is dict
    count = len(value) if is_object else 0
    for part in value.values() if is_object else value:  # type: ignore[union-attr]
        if type(part) is dict or type(part) is list:
            count += _names_in(part)
    return count
