"""How far runs of a row vary: by its own few runs, and by what all rows of a plan have in common.

Five runs tell little of their own spread, and a Student's t pays dearly for that; sixteen rows of five tell much of how
runs vary on a machine. The variances of the rows are taken for draws from one distribution, whose scale and width come
from the rows themselves (Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004): the more alike the
rows' variances are, the more each is drawn to what they share.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from suite.stats.quantiles import student_quantile, variance_ratio_quantile

#: No runs are taken to vary less, as a standard deviation of log rates (0.1 %): equal figures of a few runs do not
#: prove that there is no noise.
LEAST_SPREAD = 0.001
#: Fewer rows do not tell how alike their variances are.
FEWEST_ROWS = 6
#: Degrees of freedom of the prior below which the rows are too unlike to share anything.
_FEWEST_DEGREES = 1.0
#: Standard errors that are added to the estimated width of the rows' variances, so that rows which look alike by chance
#: do not share more than they have in common.
_CAUTION = 0.8
#: A row whose variance is above this quantile of what the others have lends nothing from them.
_UNLIKE = 0.99
#: Level at which runs of a row are called slow: of rows without such runs at most about one in a hundred is.
_SLOW_LEVEL = 0.01
_MOST_ROUNDS = 5


@dataclass(frozen=True)
class Prior:
    """What rows of a plan have in common: the ``variance`` of a run's log rate, worth ``degrees`` of freedom.

    ``most``: degrees of freedom of all runs together; no row ever has more.
    """

    variance: float
    degrees: float
    most: float


@dataclass(frozen=True)
class Spread:
    """Variance of the values around their mean, and with how many degrees of freedom it is known."""

    variance: float
    degrees: float


def mean_of(values: Sequence[float]) -> float:
    """Arithmetic mean."""
    return math.fsum(values) / len(values)


def spread(values: Sequence[float], prior: Prior | None = None) -> Spread:
    """Variance of at least two values, drawn to the prior's where there is one, and never below ``LEAST_SPREAD``.

    Posterior of an inverse chi squared prior: both variances weighted by their degrees of freedom, which add up. Values
    that vary much more than the prior's rows do (above its 99 % quantile) are left to themselves.
    """
    degrees = len(values) - 1
    mean = mean_of(values)
    own = max(math.fsum((value - mean) ** 2 for value in values) / degrees, LEAST_SPREAD**2)
    if prior is None or own > prior.variance * variance_ratio_quantile(degrees, prior.degrees, _UNLIKE):
        return Spread(own, float(degrees))
    together = degrees + prior.degrees
    variance = (degrees * own + prior.degrees * prior.variance) / together
    return Spread(max(variance, LEAST_SPREAD**2), min(together, max(prior.most, degrees)))


def moderate(groups: Sequence[Sequence[float]]) -> Prior | None:
    """What the rows of a plan share, from the log rates of the runs of each; rows of one run tell nothing.

    Null for fewer than ``FEWEST_ROWS`` rows and where the rows have too little in common. Rows with slow runs
    (``slow_runs``) are left out of it while enough others are left.
    """
    rows = [tuple(values) for values in groups if len(values) >= 2]
    prior = _without_slowest(rows)
    kept: list[tuple[float, ...]] = []
    for _ in range(_MOST_ROUNDS):
        alike = [values for values in rows if not slow_runs(values, prior)]
        if alike == kept or len(alike) < FEWEST_ROWS:
            break
        prior, kept = _fit([spread(values) for values in alike]), alike
    return prior if kept else _fit([spread(values) for values in rows])


def slow_runs(values: Sequence[float], prior: Prior | None = None) -> tuple[int, ...]:
    """Indices of the runs that stand apart below the others by log rate: fewer than half, and at least three in all.

    The runs are split at each gap below the upper half. A gap counts when it is wider than noise within the two parts
    explains (their pooled variance, with the prior's; Student's t at a level shared by the splits). One side only:
    a run can lose time to something else on the machine, and none gains any.
    """
    count = len(values)
    if count < 3:
        return ()
    order = sorted(range(count), key=lambda index: values[index])
    ordered = [values[index] - values[order[-1]] for index in order]
    sums, squares = ([0.0, *accumulate(each)] for each in (ordered, [value * value for value in ordered]))
    found = 0
    for slow in range(1, (count - 1) // 2 + 1):
        rest = squares[-1] - sums[slow] ** 2 / slow - (sums[-1] - sums[slow]) ** 2 / (count - slow)
        degrees = count - 2 + (prior.degrees if prior else 0.0)
        rest += prior.degrees * prior.variance if prior else 0.0
        deviation = math.sqrt(max(rest / degrees, LEAST_SPREAD**2))
        if ordered[slow] - ordered[slow - 1] > student_quantile(degrees, 1 - _SLOW_LEVEL / count) * deviation:
            found = slow
    return tuple(sorted(order[:found]))


def _without_slowest(rows: Sequence[Sequence[float]]) -> Prior | None:
    """What rows vary when the slowest run of each is left out: a first guess, rather small, that no slow run makes."""
    left = [spread(sorted(values)[1:]) for values in rows if len(values) >= 3]
    return _pooled(left, math.inf) if len(left) >= FEWEST_ROWS else None


def _pooled(rows: Sequence[Spread], degrees: float) -> Prior:
    """The mean variance of the rows, weighted by their degrees, worth this many but never more than they have."""
    most = math.fsum(row.degrees for row in rows)
    return Prior(math.fsum(row.degrees * row.variance for row in rows) / most, min(degrees, most), most)


def _fit(rows: Sequence[Spread]) -> Prior | None:
    """How alike the rows are, by the moments of the logarithms of their variances, whose sampling noise is known.

    The variance is the pooled one in place of Smyth's, which weighs the logarithms: where half of the rows are calm and
    half are noisy, that one would lend the noisy ones too little.
    """
    count = len(rows)
    if count < FEWEST_ROWS:
        return None
    moments = [_log_moments(row.degrees) for row in rows]
    logs = [math.log(row.variance) - mean for row, (mean, _, _) in zip(rows, moments, strict=True)]
    centre, sampling = mean_of(logs), mean_of([variance for _, variance, _ in moments])
    between = math.fsum((log - centre) ** 2 for log in logs) / (count - 1) - sampling
    error = math.sqrt(2 * sampling**2 / (count - 1) + mean_of([fourth for _, _, fourth in moments]) / count)
    degrees = _degrees_of(between + _CAUTION * error)
    return _pooled(rows, degrees) if degrees >= _FEWEST_DEGREES else None


@lru_cache(maxsize=1024)
def _log_moments(degrees: float) -> tuple[float, float, float]:
    """Mean, variance and fourth cumulant of the log of a chi squared over its degrees of freedom."""
    from scipy.special import digamma, polygamma

    half = degrees / 2
    return float(digamma(half)) - math.log(half), float(polygamma(1, half)), float(polygamma(3, half))


def _degrees_of(variance: float) -> float:
    """Degrees of a chi squared whose logarithm has this variance: twice the inverse of trigamma, by Newton's method."""
    from scipy.special import polygamma

    if variance <= 1e-6:
        return math.inf
    half = 0.5 + 1 / variance
    for _ in range(50):
        trigamma = float(polygamma(1, half))
        step = trigamma * (1 - trigamma / variance) / float(polygamma(2, half))
        half += step
        if -step < 1e-8 * half:
            break
    return 2 * half
