"""Did the counted iterations come from one steady process?"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from statistics import median
from typing import Literal

from suite.stats.quantiles import student_quantile
from suite.stats.slow_waves import blocks, number_of_waves, slow_waves

SteadyVerdict = Literal["steady", "drifting", "no steady state"]

#: With fewer the exact trend test cannot reach the level whatever the order: 2 / 4! is above 0.05.
FEWEST_ITERATIONS = 5
#: Below this many only a drift in almost perfect order is found.
ENOUGH_ITERATIONS = 8
LEVEL = 0.05
#: A drift over the whole window smaller than this share of the median does not matter.
PRACTICAL_DRIFT = 0.01
#: Most spread around the trend: standard deviation of the residuals over the median.
MOST_SPREAD = 0.20
_EXACT_POINTS = 30
#: With fewer slow waves to compare with, only a drift far beyond the noise would be found.
_FEWEST_WAVES = 3

_DRIFT = f"Theil-Sen drift over the window above {PRACTICAL_DRIFT:.0%} of the median"
_REST = (
    f"residual standard deviation above {MOST_SPREAD:.0%} of the median: no steady state; "
    f"at least {FEWEST_ITERATIONS} iterations"
)
#: Of bundles of derivation 1 and 2: correlated noise that lasts for some iterations passes for a drift too often.
TEST_OF_ORDER = f"Mann-Kendall trend at level {LEVEL:g} and {_DRIFT}: drifting; {_REST}"
TEST = (
    f"Mann-Kendall trend at level {LEVEL:g}, Student's t of the slowest wave of the window over the next slow ones "
    f"at level {LEVEL:g}, and {_DRIFT}: drifting; {_REST}"
)


@dataclass(frozen=True)
class SteadyResult:
    """The verdict, null where there are too few iterations to tell; ``drift`` and ``spread`` are shares of the median.

    ``drift`` is the Theil-Sen slope times the window, positive when iterations get slower.
    """

    verdict: SteadyVerdict | None
    drift: float | None
    spread: float | None
    reasons: tuple[str, ...]


def steady_state(seconds: Sequence[float], test: str = TEST) -> SteadyResult:
    """Judge iteration times (seconds, in order, warm-up left out) by ``TEST``, or by ``TEST_OF_ORDER``.

    Trend: Mann-Kendall (Kendall's S over time; exact up to 30 untied values, else normal with ties and continuity).
    It takes iterations for independent; where their noise lasts for a while, ``TEST`` asks besides that the trend
    exceeds how the iterations wander otherwise (``_exceeds_wander``). Size of the trend: Theil-Sen, the median of all
    pairwise slopes (Sen, JASA 63, 1968). A drift counts when it is both significant and large enough to matter. Spread
    is measured around the Theil-Sen line.
    """
    count = len(seconds)
    if count < FEWEST_ITERATIONS:
        reason = f"{count} counted iterations are too few to tell; {FEWEST_ITERATIONS} are needed"
        return SteadyResult(None, None, None, (reason,))
    points = blocks(seconds)
    middle = median(seconds)
    slope = median((points[j] - points[i]) / (j - i) for i, j in combinations(range(len(points)), 2))
    drift = slope * (len(points) - 1) / middle
    spread = _residual_spread(seconds, slope * len(points) / count) / middle
    probability = _trend_probability(points)
    notes: tuple[str, ...] = ()
    if count < ENOUGH_ITERATIONS:
        notes = (f"{count} iterations: only a drift in almost perfect order would have been found",)
    if spread > MOST_SPREAD:
        worst = max(range(count), key=lambda index: abs(seconds[index] - middle))
        reason = (
            f"iterations spread by {spread:.1%} of their median {middle:.4g} s; "
            f"the farthest is counted iteration {worst} with {seconds[worst]:.4g} s"
        )
        return SteadyResult("no steady state", drift, spread, (reason, *notes))
    if probability < LEVEL and abs(drift) > PRACTICAL_DRIFT and (test != TEST or _exceeds_wander(points)):
        way = "slower" if drift > 0 else "faster"
        reason = f"iterations get {way} by {abs(drift):.1%} over the window (Mann-Kendall p = {probability:.2g})"
        return SteadyResult("drifting", drift, spread, (reason, *notes))
    return SteadyResult("steady", drift, spread, notes)


def _residual_spread(seconds: Sequence[float], slope: float) -> float:
    residuals = [second - slope * index for index, second in enumerate(seconds)]
    mean = math.fsum(residuals) / len(residuals)
    return math.sqrt(math.fsum((residual - mean) ** 2 for residual in residuals) / (len(residuals) - 1))


def _exceeds_wander(points: Sequence[float]) -> bool:
    """Whether the slowest wave, half a period over the window, stands out from the next slow ones by Student's t.

    A straight trend has 98.6 % of its squares in that wave. Noise that lasts for some iterations is strong in all slow
    waves alike, so that it is in both parts of the ratio.
    """
    number = min(max(_FEWEST_WAVES, number_of_waves(len(points))), len(points) - 2)
    slowest, *others = slow_waves(points, 1, number + 1)
    error = math.sqrt(math.fsum(wave * wave for wave in others) / number)
    return abs(slowest) > student_quantile(number, 1 - LEVEL / 2) * error


def _trend_probability(points: Sequence[float]) -> float:
    """Two-sided probability of a Kendall S this far from 0 when the order means nothing."""
    count = len(points)
    score = sum((right > left) - (right < left) for left, right in combinations(points, 2))
    if len(set(points)) == count and count <= _EXACT_POINTS:
        return _exact_probability(count, abs(score))
    ties = [points.count(value) for value in set(points)]
    variance = (_ways(count) - sum(_ways(tie) for tie in ties)) / 18
    if score == 0:
        return 1.0
    return math.erfc((abs(score) - 1) / math.sqrt(2 * variance))


def _ways(count: int) -> int:
    return count * (count - 1) * (2 * count + 5)


@lru_cache(maxsize=_EXACT_POINTS + 1)
def _inversions(count: int) -> tuple[int, ...]:
    """How many permutations of ``count`` values have 0, 1, 2 ... pairs out of order (Mahonian numbers)."""
    if count == 1:
        return (1,)
    fewer = _inversions(count - 1)
    length = len(fewer) + count - 1
    return tuple(sum(fewer[max(0, pairs - count + 1) : pairs + 1]) for pairs in range(length))


def _exact_probability(count: int, score: int) -> float:
    pairs = count * (count - 1) // 2
    ways = _inversions(count)
    tail = sum(ways[: (pairs - score) // 2 + 1])
    return min(1.0, 2 * tail / math.factorial(count))
