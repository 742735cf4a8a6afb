"""Figures as a reader sees them: few significant digits, never an exponent where a plain number will do."""

import math
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suite.stats.intervals import Interval

UNKNOWN = "-"
GIB = 1 << 30
_DIGITS, _MOST_DIGITS = 3, 4
#: Bounds further apart than this factor are rounded each by itself.
_WIDE = 2


def decimals(value: float, digits: int = _DIGITS) -> int:
    """Digits behind the point that show ``digits`` significant ones of ``value``; 0 for zero and for large values."""
    if value == 0 or not math.isfinite(value):
        return 0
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))


def number(value: float | None, digits: int = _DIGITS) -> str:
    """``0.0512``, ``12.3``, ``1,234``: at least ``digits`` significant digits, whole digits never dropped."""
    if value is None:
        return UNKNOWN
    if value != 0 and abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{decimals(value, digits)}f}"


def interval(estimate: "Interval | None", bound_digits: int = 2) -> str:
    """``12.34 [12.31, 12.37]``: three digits, four where the bounds need them; the value alone without bounds."""
    if estimate is None:
        return UNKNOWN
    if estimate.low is None or estimate.high is None:
        return number(estimate.value)
    tiny = estimate.value != 0 and abs(estimate.value) < 1e-4
    if tiny or estimate.high > _WIDE * estimate.low:
        return f"{number(estimate.value)} [{number(estimate.low)}, {number(estimate.high)}]"
    least, most = decimals(estimate.value), decimals(estimate.value, _MOST_DIGITS)
    digits = max(least, min(most, decimals((estimate.high - estimate.low) / 2, bound_digits)))
    return f"{estimate.value:,.{digits}f} [{estimate.low:,.{digits}f}, {estimate.high:,.{digits}f}]"


def percent(ratio: float | None) -> str:
    """A ratio in percent: whole from ten, one digit behind the point from one; no sign, which the header carries."""
    if ratio is None:
        return UNKNOWN
    hundredths = 100 * ratio
    if hundredths == 0 or abs(hundredths) >= 9.95:
        return f"{hundredths:.0f}"
    return f"{hundredths:.1f}" if abs(hundredths) >= 0.95 else f"{hundredths:.2g}"


def gib(size_bytes: float | None) -> str:
    return UNKNOWN if size_bytes is None else number(size_bytes / GIB)


def moment(unix_seconds: float | None, form: str = "%Y-%m-%d %H:%M UTC") -> str:
    """A time in UTC, to the minute or in another form; ``-`` for none and for one that no calendar holds."""
    if unix_seconds is None:
        return UNKNOWN
    try:
        return datetime.fromtimestamp(unix_seconds, timezone.utc).strftime(form)
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def span(seconds: float) -> str:
    """A time that something takes, in words: ``4.2 s``, ``12 min``, ``1 h 30 min``."""
    if seconds < 90:
        return f"{number(seconds, 2)} s"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours:,} h {rest} min" if rest and hours < 10 else f"{round(seconds / 3600):,} h"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """``1 run``, ``3 runs``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def few(lines: Sequence[str], most: int = 100, rest: str = "and {} more") -> list[str]:
    """As many as somebody reads, and how many more there are."""
    left = len(lines) - most
    return list(lines) if left <= 0 else [*lines[:most], rest.format(left)]


def listed(words: "list[str] | tuple[str, ...]") -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
