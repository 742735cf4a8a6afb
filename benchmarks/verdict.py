"""A figure against its limit: met, not met, or cannot tell, with the interval that says so."""

import math
import statistics
from collections.abc import Sequence
from typing import Literal, NamedTuple

from suite.stats.quantiles import student_quantile

Verdict = Literal["met", "not met", "cannot tell", "no limit", "not measured"]
_TRIMMED = 5  # one part of so many is cut at each end


class Row(NamedTuple):
    """A line of the table."""

    what: str
    measured: str
    limit: str = "none"
    verdict: Verdict = "no limit"


class Interval(NamedTuple):
    """A value with the bounds of its 95 % interval."""

    value: float
    low: float
    high: float

    def over(self, divisor: float) -> "Interval":
        return Interval(*(bound / divisor for bound in self))

    def text(self, form: str) -> str:
        """``value [low, high]``, each in this format."""
        value, low, high = (format(bound, form) for bound in self)
        return f"{value} [{low}, {high}]"


def at_most(interval: Interval, limit: float) -> Verdict:
    """Whether what the interval is of stays within an upper limit."""
    if interval.high <= limit:
        return "met"
    return "not met" if interval.low > limit else "cannot tell"


def within(interval: Interval, low: float, high: float) -> Verdict:
    """Whether what the interval is of lies between two limits."""
    if low <= interval.low and interval.high <= high:
        return "met"
    return "not met" if interval.high < low or interval.low > high else "cannot tell"


def trimmed_mean(values: Sequence[float]) -> Interval:
    """The mean without a fifth of the values at each end, with Yuen's interval (Student's t on winsorised values).

    One preempted iteration on a shared machine outweighs the effect that is looked for. Needs five values or more.
    """
    ordered = sorted(values)
    cut = len(ordered) // _TRIMMED
    kept = ordered[cut : len(ordered) - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    error = statistics.stdev(winsorised) / ((1 - 2 * cut / len(ordered)) * math.sqrt(len(ordered)))
    half = student_quantile(len(kept) - 1) * error
    centre = statistics.fmean(kept)
    return Interval(centre, centre - half, centre + half)


def median(values: Sequence[float]) -> Interval:
    """The median between two of the values, which hold it with at least 95 % (of five: 94 %, all of them)."""
    ordered, count = sorted(values), len(values)
    tail, outside = 0, 0.5**count
    while tail + 1 < count // 2:
        outside += math.comb(count, tail + 1) * 0.5**count
        if 2 * outside > 0.05:
            break
        tail += 1
    return Interval(statistics.median(ordered), ordered[tail], ordered[count - 1 - tail])
