"""Where the level of a history changed: exact segmentation, and tests that pay for having searched.

The best partition into so many pieces of constant level is found exactly, by dynamic programming over weighted least
squares (Auger and Lawrence, Bulletin of Mathematical Biology 51, 1989, p. 39). How many pieces there are is decided
step by step, as Bai and Perron do (Journal of Applied Econometrics 18, 2003, p. 1): is one more change, or several
more, more than the best of so many places gives by chance? Each step is a test of Worsley's kind (Journal of the
American Statistical Association 74, 1979, p. 365), whose noise is what the larger fit leaves, so that the change itself
does not hide in it; the search is paid for by Bonferroni's bound over all places. No library is used: those at hand
take no weights and leave the number of changes to a penalty that somebody has to choose.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy

from suite.stats.quantiles import student_quantile

#: Chance of showing any change in a history that has none.
LEVEL = 0.01
#: Values that a piece has at least: one alone is an outlier, not a level.
LEAST_VALUES = 2
#: A single value further from the median of itself and its neighbours than so many robust standard deviations.
_OUTLIER = 4.0
#: Fewer differences than this tell no outlier from the others.
_FEWEST_TO_FILTER = 12
#: Fewer values than this tell no correlation.
_FEWEST_TO_CORRELATE = 8
_MOST_CHANGES = 24
#: Changes that one test looks for.
_MOST_TOGETHER = 8
#: Of the interval of a place, and of a size.
_CONFIDENCE = 0.95
#: Two equal normal values differ by this many standard deviations times the median of their distance.
_MEDIAN_DISTANCE = 0.9538726
_MOST_CORRELATION = 0.7

Array = numpy.ndarray


@dataclass(frozen=True)
class Change:
    """One change of level. ``place``: index of the first value of the new level; ``first`` and ``last``: the places
    that hold the true one with 95 % (posterior with flat priors; Smith, Biometrika 62, 1975, p. 407).

    ``difference`` of the levels, later less earlier, with its standard ``error`` and ``degrees`` of freedom, given the
    place. ``probability``: that noise shows so large a change anywhere between the changes beside it, at most.
    """

    place: int
    first: int
    last: int
    difference: float
    error: float
    degrees: float
    probability: float

    def interval(self) -> tuple[float, float]:
        """95 % bounds of the difference."""
        half = student_quantile(self.degrees) * self.error
        return self.difference - half, self.difference + half


@dataclass(frozen=True)
class History:
    """The pieces of a history: ``levels`` one for each, ``changes`` between them. ``noise``: standard deviation of a
    value of weight 1 around its level; null where there are too few to tell.
    """

    levels: tuple[float, ...]
    changes: tuple[Change, ...]
    noise: float | None


def find_changes(
    values: Sequence[float], weights: Sequence[float] | None = None, least_noise: float = 0.0, level: float = LEVEL
) -> History:
    """The changes of level in successive values of independent noise.

    ``weights``: inverse variances up to a factor, of mean 1 as they are used; ``least_noise``: what the standard
    deviation of a value of weight 1 is known to be at least. ``level``: the chance of showing any change where there is
    none, for normal noise.

    Raises ValueError for weights that are not as many as the values, or not above 0.
    """
    count = len(values)
    given = numpy.ones(count) if weights is None else numpy.array(weights, dtype=float)
    if len(given) != count or not (given > 0).all():
        raise ValueError("each value has a weight above 0")
    if not count:
        return History((), (), None)
    given = given / given.mean()
    series = _Series(without_outliers(numpy.array(values, dtype=float)), given, least_noise)
    bounds = _chosen(series, level)
    levels = tuple(series.level(low, high) for low, high in pairwise(bounds))
    if count - len(levels) < 1:
        return History(levels, (), None)
    variance = series.variance(series.left(bounds), count - len(levels))
    inflated = variance * series.inflation(bounds)
    changes = [
        _change(series, bounds, number, variance, inflated, count - len(levels)) for number in range(1, len(levels))
    ]
    return History(levels, tuple(changes), math.sqrt(variance))


def without_outliers(values: Array) -> Array:
    """The values, of which single ones that lie far from both neighbours are put to the median of the three (Hampel's
    filter). A level that lasts two values or more is left as it is."""
    if len(values) < _FEWEST_TO_FILTER:
        return values
    spread = float(numpy.median(numpy.abs(numpy.diff(values)))) / _MEDIAN_DISTANCE
    before, after = numpy.roll(values, 1), numpy.roll(values, -1)
    before[0], after[-1] = values[1], values[-2]  # an end has its neighbour twice
    middle = numpy.median([before, values, after], axis=0)
    is_far = numpy.abs(values - middle) > _OUTLIER * spread
    drawn: Array = numpy.where(is_far, middle, values)
    return drawn if spread > 0 else values


class _Series:
    """Sums over stretches of weighted values, around their mean so that no digits are lost."""

    def __init__(self, values: Array, weights: Array, least_noise: float) -> None:
        self.count = len(values)
        self._centre = float(numpy.average(values, weights=weights))
        self.values, self.weights, self._least = values - self._centre, weights, least_noise**2
        start = numpy.zeros(1)
        self.mass = numpy.concatenate([start, numpy.cumsum(weights)])
        self.first = numpy.concatenate([start, numpy.cumsum(weights * self.values)])
        self.second = numpy.concatenate([start, numpy.cumsum(weights * self.values**2)])
        self._from: list[Array] = []

    def cost(self, low: Array | int, high: Array | int) -> Array:
        """Weighted squares around the mean of the values ``low <= i < high``."""
        total = self.first[high] - self.first[low]
        squares = self.second[high] - self.second[low] - total * total / (self.mass[high] - self.mass[low])
        return numpy.maximum(squares, 0.0)

    def level(self, low: int, high: int) -> float:
        return self._centre + float((self.first[high] - self.first[low]) / (self.mass[high] - self.mass[low]))

    def left(self, bounds: Sequence[int]) -> float:
        """What a partition leaves of the squares."""
        return math.fsum(float(self.cost(low, high)) for low, high in pairwise(bounds))

    def variance(self, left: float, degrees: int) -> float:
        return max(left / degrees, self._least, 1e-24)

    def inflation(self, bounds: Sequence[int]) -> float:
        """How much the variance of a mean is larger because values that follow each other are alike: (1 + r) / (1 - r)
        of their lag-one autocorrelation around the levels, less what fitting these takes from it; 1 where it is within
        its own error."""
        around = self.values.copy()
        for low, high in pairwise(bounds):
            around[low:high] -= self.level(low, high) - self._centre
        around *= numpy.sqrt(self.weights)
        squares = float(around @ around)
        if squares <= 0 or self.count < _FEWEST_TO_CORRELATE:
            return 1.0
        lagged = float(around[1:] @ around[:-1]) / squares + (len(bounds) - 1) / self.count
        if lagged < 1 / math.sqrt(self.count):
            return 1.0
        correlation = min(lagged, _MOST_CORRELATION)
        return (1 + correlation) / (1 - correlation)

    def partition(self, changes: int) -> list[int]:
        """The bounds of the best partition with so many changes, 0 and the number of values among them."""
        if len(self._from) <= changes:
            self._solve(min(self.most_changes, max(_MOST_TOGETHER, 2 * changes)))
        bounds, end = [self.count], self.count
        for number in range(changes, 0, -1):
            end = int(self._from[number][end])
            bounds.append(end)
        return [0, *reversed(bounds)]

    @property
    def most_changes(self) -> int:
        return max(0, min(_MOST_CHANGES, self.count // 2 - 2))

    def _solve(self, most: int) -> None:
        """By dynamic programming, all numbers of changes up to ``most`` at once: ``best[k][j]`` of the first j."""
        count = self.count
        best = numpy.full((most + 1, count + 1), numpy.inf)
        came = numpy.zeros((most + 1, count + 1), dtype=int)
        ends = numpy.arange(LEAST_VALUES, count + 1)
        best[0, LEAST_VALUES:] = self.cost(numpy.zeros_like(ends), ends)
        for end in range(2 * LEAST_VALUES, count + 1):
            starts = numpy.arange(LEAST_VALUES, end - LEAST_VALUES + 1)
            totals = best[:most, starts] + self.cost(starts, numpy.full_like(starts, end))
            chosen = totals.argmin(axis=1)
            best[1:, end] = totals[numpy.arange(most), chosen]
            came[1:, end] = starts[chosen]
        self._from = list(came)


def _chosen(series: _Series, level: float) -> list[int]:
    """Bounds of as many pieces as the tests hold. Several changes that hide each other when they are looked for one by
    one are tested together: half of the level is for one more, a quarter for two, and so on."""
    bounds = [0, series.count]
    while True:
        changes = len(bounds) - 2
        steps = range(1, min(_MOST_TOGETHER, series.most_changes - changes) + 1)
        more = next((step for step in steps if _is_more(series, bounds, step, level / 2**step)), None)
        if more is None:
            return bounds
        bounds = series.partition(changes + more)


def _is_more(series: _Series, bounds: Sequence[int], step: int, level: float) -> bool:
    """Whether ``step`` more changes are more than noise: F of what they explain, times the places they could be at."""
    from scipy.special import fdtrc

    changes = len(bounds) - 2 + step
    degrees = series.count - changes - 1
    larger = series.partition(changes)
    left = series.left(larger)
    explained = series.left(bounds) - left
    noise = series.variance(left, degrees) * series.inflation(larger)
    tried = _places_tried([high - low for low, high in pairwise(bounds)], step)
    return tried * float(fdtrc(step, degrees, max(explained, 0.0) / step / noise)) <= level


def _places_tried(lengths: Sequence[int], changes: int) -> int:
    """In how many ways so many changes can be put into pieces of these lengths."""
    ways = [1, *[0] * changes]  # by the number of changes, in the pieces so far
    for length in lengths:
        here = [_ways(length, number) for number in range(changes + 1)]
        ways = [sum(ways[number - more] * here[more] for more in range(number + 1)) for number in range(changes + 1)]
    return ways[changes]


@lru_cache(maxsize=4096)
def _ways(length: int, changes: int) -> int:
    """In how many ways a stretch is divided by so many changes."""
    free = length - (changes + 1) * LEAST_VALUES
    return math.comb(free + changes, changes) if free >= 0 else 0


def _change(
    series: _Series, bounds: Sequence[int], number: int, variance: float, inflated: float, degrees: int
) -> Change:
    from scipy.special import stdtr

    low, place, high = bounds[number - 1 : number + 2]
    before, after = (series.mass[end] - series.mass[start] for start, end in ((low, place), (place, high)))
    difference = series.level(place, high) - series.level(low, place)
    error = math.sqrt(inflated * (1 / before + 1 / after))
    probability = 2 * _ways(high - low, 1) * float(stdtr(degrees, -abs(difference) / error))
    first, last = _places(series, low, high, variance, inflated, degrees)
    return Change(place, min(first, place), max(last, place), difference, error, float(degrees), min(probability, 1.0))


def _places(series: _Series, low: int, high: int, variance: float, inflated: float, degrees: int) -> tuple[int, int]:
    """From the first to the last of the likeliest places that hold the true one with 95 %."""
    places = numpy.arange(low + LEAST_VALUES, high - LEAST_VALUES + 1)
    ends = (numpy.full_like(places, low), numpy.full_like(places, high))
    left = (series.cost(ends[0], places) + series.cost(places, ends[1])) * variance / inflated
    masses = (series.mass[places] - series.mass[low]) * (series.mass[high] - series.mass[places])
    logs = -(degrees / 2) * numpy.log1p((left - left.min()) / (degrees * variance)) - 0.5 * numpy.log(masses)
    chances = numpy.exp(logs - logs.max())
    order = numpy.argsort(-chances, kind="stable")
    needed = int(numpy.searchsorted(numpy.cumsum(chances[order]) / chances.sum(), _CONFIDENCE)) + 1
    kept = places[order[:needed]]
    return int(kept.min()), int(kept.max())
