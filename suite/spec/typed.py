"""What a user types, read into values or refused in one line; and the bounds that no number may exceed."""

import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from suite.spec.terminal import UsageError

#: of any count, size or seed
MOST = 1 << 48
#: of the ranks of a run, and of the factors that make them
MOST_RANKS = 1 << 20
#: of a limit or another duration that is asked for: ten years, which every timer and scheduler can hold
MOST_SECONDS = 10 * 365 * 24 * 3600
#: of one wait of a driver, which then looks again at what is due: the timers of some systems end at 24 days
LONGEST_WAIT_SECONDS = 3600.0
#: of a size in bytes: an exbibyte
MOST_BYTES = 1 << 60
#: of the iterations of one run, warm-up in
MOST_ITERATIONS = 1_000_000
#: of the samples of an iteration on one device
MOST_SAMPLES = 1 << 24
#: of samples of uneven lengths in all, each of which a manifest lists
MOST_LENGTHS = 500_000


def first_beyond(value: Any, most: int = MOST) -> tuple[str, ...] | None:
    """The path, of names and positions, to a number within JSON-like data that is no finite one up to ``most``; null
    where all are. Does not recurse, so that depth is no matter."""
    left: list[tuple[tuple[str, ...], Any]] = [((), value)]
    while left:
        path, part = left.pop()
        if isinstance(part, dict):
            left += [((*path, str(name)), inner) for name, inner in part.items()]
        elif isinstance(part, (list, tuple)):
            # the lengths of samples may be a million whole numbers
            if not all(type(inner) is int and -most <= inner <= most for inner in part):
                left += [((*path, str(position)), inner) for position, inner in enumerate(part)]
        elif isinstance(part, (int, float)) and not abs(part) <= most:  # NaN too
            return path
    return None


_NUMBER = r"(\d+(?:\.\d+)?)"
_DURATION = re.compile(rf"(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s?)?")
_PERCENT = re.compile(rf"{_NUMBER}\s*%")
_SIZE = re.compile(rf"{_NUMBER}\s*([kmgt]?)i?b?")
#: Longer texts are no number that anybody means.
_LONGEST_TEXT = 40


def seconds(option: str, text: str) -> float:
    """``90``, ``90s``, ``20m``, ``1h30m``, ``7d`` in seconds. Raises UsageError for others, and beyond ten years."""
    match = _match(_DURATION, text)
    numbers = match.groups("0") if match else ("0",) * 4
    total = sum(float(number) * unit for number, unit in zip(numbers, (86400, 3600, 60, 1), strict=True))
    if not 0 < total <= MOST_SECONDS:
        raise UsageError(f"{option} {shown(text)} is no duration up to ten years; write 90s, 20m, 1h30m or 7d")
    return total


def size(option: str, text: str) -> int:
    """``16g``, ``512m``, ``1.5GiB`` in bytes (units of 1024). Raises UsageError for others, and beyond an exbibyte."""
    match = _match(_SIZE, text)
    amount = float(match[1]) * 1024 ** " kmgt".index(match[2] or " ") if match else math.inf
    if amount > MOST_BYTES:
        raise UsageError(f"{option} {shown(text)} is no size that a machine has; write 512m, 16g or 1.5g")
    return int(amount)


def share(option: str, text: str) -> float:
    """``3%`` or ``2.5%`` as a share of 1. Raises UsageError for anything else, and for none or more than all."""
    match = _match(_PERCENT, text)
    value = float(match.group(1)) / 100 if match else 0.0
    if not 0 < value <= 1:
        raise UsageError(f"{option} is a percentage such as 3%, not {shown(text)}")
    return value


def counts(option: str, texts: Sequence[str]) -> tuple[int, ...]:
    """Whole numbers from 1 on, each once, as ``1,2,4`` or one a text. Raises UsageError for anything else."""
    return tuple(dict.fromkeys(whole(option, word, MOST_RANKS) for text in texts for word in text.split(",")))


def whole(option: str, text: str, most: int) -> int:
    """A whole number from 1 to ``most``. Raises UsageError for anything else."""
    plain = text.strip()
    count = int(plain) if plain.isdecimal() and len(plain) <= _LONGEST_TEXT else 0
    if not 1 <= count <= most:
        raise UsageError(f"{option} is a whole number from 1 to {most:,}, not {shown(text)}")
    return count


def pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    """``NAME=VALUE`` of each text; of a name that comes twice the last. Raises UsageError for anything else."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError(f"{option} is NAME=VALUE, not {text!r}")
        found[name] = value
    return found


def shown(text: str) -> str:
    """What was typed, as a message has it: quoted, and not in all its length."""
    return repr(text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 3]}...")


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    plain = text.strip().lower()
    return pattern.fullmatch(plain) if len(plain) <= _LONGEST_TEXT else None


def moment_of(option: str, text: str, now: float) -> float:
    """``2026-11-01``, ``2026-11-01T18:00`` (UTC unless it names another zone), ``90m``, ``24h``, ``7d`` (so long before
    ``now``) in Unix seconds. Raises UsageError for anything else."""
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    except ValueError:
        pass
    try:
        return now - seconds(option, text)
    except UsageError as error:
        raise UsageError(
            f"{option} is a day such as 2026-11-01, with a time as 2026-11-01T18:00, or how long ago as 24h or 7d, not "
            f"{shown(text)}"
        ) from error
