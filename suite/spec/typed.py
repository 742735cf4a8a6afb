"""What a user types, read into values: durations, sizes and pairs, with one clear line where it cannot be read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import BaseModel

from suite.spec.bounds import MOST_BYTES, MOST_SECONDS

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?")
#: Longer texts are no number that anybody means.
_LONGEST_TEXT = 40
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def seconds(option: str, text: str) -> float:
    """``90``, ``90s``, ``20m``, ``1h30m`` in seconds.

    Raises UsageError for anything else, for nothing or less, and for more than ten years.
    """
    from suite.spec.base import UsageError

    match = _match(_DURATION, text)
    numbers = match.groups() if match else (None, None, None)
    total = sum(float(number) * unit for number, unit in zip(numbers, (3600, 60, 1), strict=True) if number)
    if total <= 0:
        raise UsageError(f"{option} {shown(text)} is no duration; write 90s, 20m or 1h30m")
    if total > MOST_SECONDS:
        raise UsageError(f"{option} {shown(text)} is longer than ten years; write 90s, 20m or 1h30m")
    return total


def size(option: str, text: str) -> int:
    """``16g``, ``512m``, ``1.5GiB`` in bytes (units of 1024).

    Raises UsageError for anything else and for more than an exbibyte.
    """
    from suite.spec.base import UsageError

    match = _match(_SIZE, text)
    if match is None:
        raise UsageError(f"{option} {shown(text)} is no size; write 512m, 16g or 1.5g")
    amount = float(match.group(1)) * _SIZE_UNITS[match.group(2)]
    if amount > MOST_BYTES:
        raise UsageError(f"{option} {shown(text)} is more than any machine has; write 512m, 16g or 1.5g")
    return int(amount)


def pair(option: str, text: str) -> tuple[str, str]:
    """``NAME=VALUE`` in two. Raises UsageError for anything else."""
    from suite.spec.base import UsageError

    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"{option} is NAME=VALUE, not {text!r}")
    return name, value


def share(option: str, text: str) -> float:
    """``3%`` or ``2.5%`` as a share of 1. Raises UsageError for anything else, and for none or more than all."""
    from suite.spec.base import UsageError

    match = _match(_PERCENT, text)
    value = float(match.group(1)) / 100 if match else 0.0
    if not 0 < value <= 1:
        raise UsageError(f"{option} is a percentage such as 3%, not {shown(text)}")
    return value


def counts(option: str, texts: Sequence[str]) -> tuple[int, ...]:
    """Whole numbers from 1 on, each text one or several with commas between: ``1,2,4``; each number once.

    Raises UsageError for anything else.
    """
    from suite.spec.base import UsageError

    found = []
    for text in texts:
        for word in text.split(","):
            number = int(word) if word.strip().isdecimal() and len(word) < 8 else 0
            if number < 1:
                raise UsageError(f"{option} is a number from 1 on, or several such as 1,2,4, not {text!r}")
            found.append(number)
    return tuple(dict.fromkeys(found))


def whole(option: str, text: str, most: int) -> int:
    """A whole number from 1 to ``most``. Raises UsageError for anything else."""
    from suite.spec.base import UsageError

    plain = text.strip()
    count = int(plain) if plain.isdecimal() and len(plain) <= _LONGEST_TEXT else 0
    if not 1 <= count <= most:
        raise UsageError(f"{option} is a whole number from 1 to {most:,}, not {shown(text)}")
    return count


def same_named(options: Any, model: type[BaseModel]) -> dict[str, Any]:
    """The values of options that are called like a field of the model."""
    return {name: getattr(options, name) for name in model.model_fields if hasattr(options, name)}


def shown(text: str) -> str:
    """What was typed, as a message has it: quoted, and not in all its length."""
    return repr(text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}...")


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    plain = text.strip().lower()
    return pattern.fullmatch(plain) if len(plain) <= _LONGEST_TEXT else None
