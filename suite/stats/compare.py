"""Is one rate higher than another, and are two rates the same for all practical purposes?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from suite.stats.intervals import Interval, RunSeconds, log_rates
from suite.stats.moderated import Prior, mean_of, spread
from suite.stats.quantiles import range_quantile, student_quantile

ComparisonVerdict = Literal["faster", "slower", "not distinguishable"]
DEFAULT_MARGIN = 0.05


@dataclass(frozen=True)
class Comparison:
    """Rate of a over rate of b. ``equivalent`` is null where there are too few runs to say.

    ``paired_rounds``: from so many differences within rounds (``suite.stats.rounds``), or from so many starts of rows
    that took ``turns`` by iteration, so many in all; null: of independent runs.
    """

    ratio: Interval
    verdict: ComparisonVerdict
    equivalent: bool | None
    margin: float
    reasons: tuple[str, ...]
    paired_rounds: int | None = None
    turns: int | None = None


@dataclass(frozen=True)
class LogDifference:
    """Difference of two mean log rates; ``error`` is its standard error with ``degrees`` of freedom.

    ``is_moderated``: whether the variances were drawn to what the rows of a plan share.
    """

    mean: float
    error: float
    degrees: float
    is_moderated: bool = False

    def interval(self, confidence: float = 0.95, sides: int = 2) -> tuple[float, float]:
        """Bounds of the ratio that hold with this ``confidence``, for all pairs of so many ``sides`` together.

        All pairs: by the studentized range where variances are moderated (as Games and Howell, Journal of Educational
        Statistics 1, 1976, for unequal ones), else by Bonferroni, because with the few degrees of freedom of single
        rows the range lets too many differences pass.
        """
        if sides > 2 and self.is_moderated:
            quantile = range_quantile(sides, self.degrees, confidence) / math.sqrt(2.0)
        else:
            quantile = student_quantile(self.degrees, 1 - (1 - confidence) / (sides * (sides - 1)))
        half = quantile * self.error
        return math.exp(max(self.mean - half, -700.0)), math.exp(min(self.mean + half, 700.0))


def welch(a: Sequence[RunSeconds], b: Sequence[RunSeconds], prior: Prior | None = None) -> LogDifference | None:
    """Difference of mean log rates a - b with Welch's standard error and degrees of freedom (Biometrika 34, 1947).

    With a ``prior``, from the moderated variance of each side and its degrees. Null where either side has fewer than
    two runs, because nothing then tells the spread between its runs.
    """
    if len(a) < 2 or len(b) < 2:
        return None
    logs_a, logs_b = log_rates(a), log_rates(b)
    spread_a, spread_b = spread(logs_a, prior), spread(logs_b, prior)
    variance_a, variance_b = spread_a.variance / len(a), spread_b.variance / len(b)
    total = variance_a + variance_b
    degrees = total**2 / (variance_a**2 / spread_a.degrees + variance_b**2 / spread_b.degrees)
    if prior is not None:
        degrees = min(degrees, max(prior.most, len(a) + len(b) - 2))
    return LogDifference(mean_of(logs_a) - mean_of(logs_b), math.sqrt(total), degrees, is_moderated=prior is not None)


def compare(
    a: Sequence[RunSeconds],
    b: Sequence[RunSeconds],
    margin: float = DEFAULT_MARGIN,
    pairs: int = 1,
    prior: Prior | None = None,
    sides: int = 2,
) -> Comparison:
    """Rate of ``a`` against rate of ``b``; the caller sees to it that their work is equal.

    ``faster`` or ``slower`` when the 95 % interval of the ratio leaves out 1. Not distinguishable is not equal:
    ``equivalent`` is two one-sided tests at 5 % each (TOST; Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987): the
    90 % interval of the ratio lies within 1 / (1 + margin) .. 1 + margin. A ratio can be both faster and equivalent.

    ``prior``: what the rows of the plan share of their variance (``suite.stats.moderated.moderate``).
    ``sides``: of how many rows of a group these are two, where both levels shall hold for all pairs of them together.
    Who compares several sides with the best of them has chosen it by its rate, so that all pairs count.
    ``pairs``: of how many other comparisons (or groups of ``sides``) this is one, where the levels shall hold for all
    of them together (Bonferroni).

    What runs that took turns share of their noise is not used here (``suite.stats.rounds`` does): the intervals are
    then rather too wide.

    The bounds are null where either side has fewer than two runs. Raises ValueError for a margin that is not positive
    or a side without runs.
    """
    if not margin > 0:
        raise ValueError(f"the margin is {margin}, must be above 0")
    if not a or not b:
        raise ValueError("a ratio needs at least one run on each side")
    difference = welch(a, b, prior)
    if difference is None:
        reason = f"{len(a)} and {len(b)} runs: at least 2 on each side tell the spread between runs"
        ratio = Interval(math.exp(mean_of(log_rates(a)) - mean_of(log_rates(b))), None, None)
        return Comparison(ratio, "not distinguishable", None, margin, (reason,))
    return decided(difference, margin, pairs, sides)


def decided(
    difference: LogDifference,
    margin: float = DEFAULT_MARGIN,
    pairs: int = 1,
    sides: int = 2,
    rounds: int | None = None,
    turns: int | None = None,
) -> Comparison:
    """What a difference says at the levels of ``compare``. ``rounds``, ``turns``: how many it was taken within, if it
    was."""
    low, high = difference.interval(1 - 0.05 / pairs, sides)
    verdict: ComparisonVerdict = "faster" if low > 1 else "slower" if high < 1 else "not distinguishable"
    least, most = difference.interval(1 - 0.10 / pairs, sides)
    equivalent = 1 / (1 + margin) <= least and most <= 1 + margin
    return Comparison(Interval(math.exp(difference.mean), low, high), verdict, equivalent, margin, (), rounds, turns)
