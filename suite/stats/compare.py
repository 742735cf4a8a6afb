"""Is one rate higher than another, and are two rates the same for all practical purposes?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from suite.stats.intervals import Interval, RunSeconds, log_rates, mean_and_error, student_quantile

ComparisonVerdict = Literal["faster", "slower", "not distinguishable"]
DEFAULT_MARGIN = 0.05


@dataclass(frozen=True)
class Comparison:
    """Rate of a over rate of b. ``equivalent`` is null where there are too few runs to say."""

    ratio: Interval
    verdict: ComparisonVerdict
    equivalent: bool | None
    margin: float
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class LogDifference:
    """Difference of two mean log rates; ``error`` is its standard error with ``degrees`` of freedom."""

    mean: float
    error: float
    degrees: float

    def interval(self, probability: float = 0.975) -> tuple[float, float]:
        """Bounds of the ratio whose upper one has this one-sided probability; 0.975 gives 95 %."""
        half = 0.0 if self.error == 0 else student_quantile(self.degrees, probability) * self.error
        return math.exp(max(self.mean - half, -700.0)), math.exp(min(self.mean + half, 700.0))


def welch(a: Sequence[RunSeconds], b: Sequence[RunSeconds]) -> LogDifference | None:
    """Difference of mean log rates a - b with Welch's standard error and degrees of freedom (Biometrika 34, 1947).

    Null where either side has fewer than two runs, because nothing then tells the spread between its runs.
    """
    if len(a) < 2 or len(b) < 2:
        return None
    mean_a, error_a = mean_and_error(log_rates(a))
    mean_b, error_b = mean_and_error(log_rates(b))
    variance_a, variance_b = error_a**2, error_b**2
    total = variance_a + variance_b
    scale = variance_a**2 / (len(a) - 1) + variance_b**2 / (len(b) - 1)
    degrees = total**2 / scale if scale > 0 else float(len(a) + len(b) - 2)
    return LogDifference(mean=mean_a - mean_b, error=math.sqrt(total), degrees=degrees)


def ratio_interval(a: Sequence[RunSeconds], b: Sequence[RunSeconds], pairs: int = 1) -> Interval:
    """Ratio of the geometric mean rates a / b with its 95 % interval (Welch, on logarithms).

    With ``pairs`` above 1 the intervals of so many ratios hold together at 95 % (Bonferroni). The bounds are null where
    either side has fewer than two runs. Raises ValueError where one has none.
    """
    if not a or not b:
        raise ValueError("a ratio needs at least one run on each side")
    difference = welch(a, b)
    if difference is None:
        mean = math.fsum(log_rates(a)) / len(a) - math.fsum(log_rates(b)) / len(b)
        return Interval(math.exp(mean), None, None)
    low, high = difference.interval(1 - 0.025 / pairs)
    return Interval(math.exp(difference.mean), low, high)


def compare(
    a: Sequence[RunSeconds], b: Sequence[RunSeconds], margin: float = DEFAULT_MARGIN, pairs: int = 1
) -> Comparison:
    """Rate of ``a`` against rate of ``b``; the caller sees to it that their work is equal.

    ``faster`` or ``slower`` when the 95 % interval of the ratio leaves out 1. Not distinguishable is not equal:
    ``equivalent`` is two one-sided tests at 5 % each (TOST; Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987): the
    90 % interval of the ratio lies within 1 / (1 + margin) .. 1 + margin. A ratio can be both faster and equivalent.

    ``pairs``: of how many comparisons this is one, where both levels shall hold for all of them together. Who compares
    several sides with the best of them has chosen it by its rate, so that all pairs count, k (k - 1) / 2.

    Runs that took turns share some of their noise, which is not used: the intervals are then rather too wide.

    Raises ValueError for a margin that is not positive or a side without runs.
    """
    if not margin > 0:
        raise ValueError(f"the margin is {margin}, must be above 0")
    ratio = ratio_interval(a, b, pairs)
    difference = welch(a, b)
    if difference is None or ratio.low is None or ratio.high is None:
        reason = f"{len(a)} and {len(b)} runs: at least 2 on each side tell the spread between runs"
        return Comparison(ratio, "not distinguishable", None, margin, (reason,))
    verdict: ComparisonVerdict = "faster" if ratio.low > 1 else "slower" if ratio.high < 1 else "not distinguishable"
    low, high = difference.interval(1 - 0.05 / pairs)
    equivalent = 1 / (1 + margin) <= low and high <= 1 + margin
    return Comparison(ratio, verdict, equivalent, margin, ())
