"""Files of one JSON object a line, read fast where they are as the suite writes them, and as strictly everywhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from json.scanner import make_scanner
from typing import Any

from suite.bundle.files import LINE_BYTES, DamagedBundle, no_constant, parse_object

#: In a line with one of these, names are harder to count than ``_plain_object`` does.
_CAREFUL = ("\\", " :", "\t:", "\r:")
_scan = make_scanner(json.JSONDecoder(parse_constant=no_constant))


def objects(data: bytes, name: str, notes: list[str]) -> Iterator[dict[str, Any]]:
    """The object of each whole line. A last line that its writer did not finish is left out and noted.

    ``name`` is what messages call the file. Raises DamagedBundle for a line that is too long or no object.
    """
    text = data.decode("ascii") if data.isascii() else ""
    careful = [mark for mark in _CAREFUL if mark in text]
    number = start = 0
    while start < len(data):
        number += 1
        end = data.find(b"\n", start)
        if (len(data) if end < 0 else end + 1) - start > LINE_BYTES:
            raise DamagedBundle(f"{name} line {number} is longer than {LINE_BYTES} bytes")
        if end < 0:
            notes.append(f"{name} line {number} was cut short and left out")
            return
        is_plain = text and not (careful and any(text.find(mark, start, end) >= 0 for mark in careful))
        yield (_plain_object(text, start, end) if is_plain else None) or _object(data[start:end], name, number)
        start = end + 1


def _object(line: bytes, name: str, number: int) -> dict[str, Any]:
    where = f"{name} line {number}"
    try:
        return parse_object(line.decode(), where)
    except UnicodeDecodeError as error:
        raise DamagedBundle(f"{where} is not UTF-8 text") from error


def _plain_object(text: str, start: int, end: int) -> dict[str, Any] | None:
    """The object that ``text[start:end]`` is, as ``parse_object`` gives it; null where that must look.

    That no name is given twice is seen by their number: where there are no backslashes, and no spaces before colons,
    a name is followed by ``":`` at once, so that the line has at least as many of these as names, and not more than
    the object has names only if none was lost.
    """
    try:
        value, stop = _scan(text, start)
    except (StopIteration, ValueError, RecursionError):
        return None
    if stop != end or type(value) is not dict:
        return None
    names = len(value) if text.count("{", start, end) == 1 else _names_in(value)
    return value if text.count('":', start, end) == names else None


def _names_in(value: dict | list) -> int:
    is_object = type(value) is dict
    count = len(value) if is_object else 0
    for part in value.values() if is_object else value:  # type: ignore[union-attr]
        if type(part) is dict or type(part) is list:
            count += _names_in(part)
    return count
