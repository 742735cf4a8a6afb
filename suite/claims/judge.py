"""One cell against the values that it may have."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from suite.claims.cells import Amount, Column, other_reading
from suite.claims.conventions import Expected, Row

#: A share above it is no noise.
_HIGHEST = {"mfu": 1.0, "hfu": 1.0, "efficiency": 1.1}


@dataclass(frozen=True)
class Judged:
    """A cell with all values that it could have, those of them that it has, and why it is flagged if it is.

    A cell without options and without a reason is underivable. ``certain``: the reason is what the cell says, not only
    that nothing explains it.
    """

    row: Row
    text: str
    amount: Amount
    options: tuple[Expected, ...]
    fits: tuple[Expected, ...]
    reason: str = ""
    certain: bool = False

    @property
    def good(self) -> tuple[Expected, ...]:
        """The conventions that explain it; none where it is flagged."""
        return () if self.reason else tuple(entry for entry in self.fits if not entry.wrong)

    @property
    def impossible(self) -> bool:
        """Whether no table can hold it, whatever else it says."""
        return not (math.isfinite(self.amount.value) and self.amount.value > 0)

    def flagged(self, reason: str) -> "Judged":
        return replace(self, reason=reason, certain=True)

    def underivable(self) -> "Judged":
        return replace(self, options=(), fits=(), reason="")


def judge(column: Column, row: Row, text: str, found: Amount, options: Sequence[Expected], tolerance: float) -> Judged:
    """The cell ``text``, whose number is ``found``, within its rounding and ``tolerance``.

    A convention that should not be used goes before more far-fetched ones that may be.
    """
    fits = [entry for entry in options if agrees(found, entry, tolerance)]
    other = None if fits else other_reading(text, column)
    if other is not None and any(agrees(other, entry, tolerance) for entry in options):
        found = other
        fits = [entry for entry in options if agrees(found, entry, tolerance)]
    good = [entry.cost for entry in fits if not entry.wrong]
    wrong = min((entry for entry in fits if entry.wrong), key=lambda entry: entry.cost, default=None)
    reason = _impossible(column.meaning, found.value, fits)
    certain = bool(reason or fits)
    if not reason and wrong and (not good or wrong.cost < min(good)):
        reason = f"it is {wrong.wrong}: fits {wrong.convention}"
    elif not reason and options and not fits:
        reason = nearest(found.value, options)
    return Judged(row, text, found, tuple(options), tuple(fits), reason, certain)


def agrees(found: Amount, entry: Expected, tolerance: float) -> bool:
    """Whether a figure is what a convention gives, or lies in the range that it leaves open."""
    low, high = entry.low or entry.value, entry.high or entry.value
    return low * (1 - tolerance) - found.rounding <= found.value <= high * (1 + tolerance) + found.rounding


def nearest(value: float, options: Sequence[Expected]) -> str:
    """Why a figure is flagged that nothing explains."""
    best, off = closest(value, [entry for entry in options if not entry.wrong] or options)
    return f"no convention explains it; nearest is {off:+.1f} % off: {best.convention}"


def closest(value: float, options: Sequence[Expected]) -> tuple[Expected, float]:
    """The option nearest to a figure, and how far the figure is from it in percent."""
    best = min(options, key=lambda entry: (abs(math.log(value / entry.value)), entry.cost))
    return best, 100 * (value / best.value - 1)


def _impossible(meaning: str, value: float, fits: Sequence[Expected]) -> str:
    if not math.isfinite(value):
        return "not a finite number"
    if value <= 0:
        return "zero or negative"
    highest = _HIGHEST.get(meaning)
    if highest is None or value <= highest:
        return ""
    if meaning == "efficiency":
        wrong = next((f": fits {entry.convention}" for entry in fits if entry.wrong), "")
        return f"{100 * value:.0f} % is a speed-up, not an efficiency{wrong}"
    return f"{100 * value:.0f} % of a peak is over 100 %"
