"""95 % intervals of a rate: within one run, and over repeats.

A rate is total work over total time, so its noise is that of the mean iteration time. Intervals are made on the
logarithm of the rate (delta method), which keeps them positive and lets ratios be differences.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from suite.stats.moderated import LEAST_SPREAD, Prior, mean_of, spread
from suite.stats.quantiles import student_quantile
from suite.stats.slow_waves import blocks, number_of_waves, slow_waves

#: Relative half-width of the 95 % interval of the mean of at least two successive values.
HalfWidth = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class RunSeconds:
    """The counted iterations of one run: equal ``work`` each (samples, tokens, ...), ``seconds`` one by one."""

    work: float
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.seconds or not self.work > 0 or not all(0 < second < math.inf for second in self.seconds):
            raise ValueError("a rate needs positive work and at least one iteration of positive seconds")

    @cached_property
    def rate(self) -> float:
        """Total work over total time, per second."""
        return self.work * len(self.seconds) / math.fsum(self.seconds)


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % bounds, ``low <= value <= high``; both bounds are null where nothing bounds it."""

    value: float
    low: float | None
    high: float | None

    def scaled(self, factor: float) -> "Interval":
        """The same estimate in another unit; ``factor`` is positive."""
        if self.low is None or self.high is None:
            return Interval(self.value * factor, None, None)
        return Interval(self.value * factor, self.low * factor, self.high * factor)


def by_slow_waves(values: Sequence[float]) -> float:
    """Relative half-width of the mean of successive values, by how far they wander.

    Student's t, with as many degrees of freedom as the slow waves that its variance is the mean square of. Values that
    follow each other in one process need not be independent, and what they have in common for a while shows in those
    waves; of independent ones the slow waves have the same variance as all others. Iterations are never taken to spread
    by less than ``LEAST_SPREAD``.
    """
    points = blocks(values)
    number = min(number_of_waves(len(points)), len(points) - 1)
    squares = math.fsum(wave * wave for wave in slow_waves(points, 1, number))
    error = math.sqrt(squares / number / len(points)) / mean_of(values)
    return student_quantile(number) * max(error, LEAST_SPREAD / math.sqrt(len(values)))


def by_lag_one(values: Sequence[float]) -> float:
    """Relative half-width as bundles of derivation 1 and 2 have it: too narrow where values are correlated.

    Student's t with n - 1 degrees of freedom; the variance of the mean is multiplied by (1 + r) / (1 - r), the
    inflation of a first-order autoregressive series, where r is their lag-one autocorrelation when that is positive.
    """
    count, mean = len(values), mean_of(values)
    deviations = [value - mean for value in values]
    squares = math.fsum(deviation * deviation for deviation in deviations)
    error = math.sqrt(squares / (count - 1) / count * _inflation(deviations, squares)) / mean
    return student_quantile(count - 1) * error


def rate_interval(run: RunSeconds, half_width: HalfWidth = by_slow_waves) -> Interval:
    """Rate of one run, per second, with the interval that its own iterations give.

    It says nothing of the spread between runs; one iteration alone gives no bounds.
    """
    if len(run.seconds) < 2:
        return Interval(run.rate, None, None)
    return _around(run.rate, math.log(run.rate), half_width(run.seconds))


def mean_interval(values: Sequence[float], half_width: HalfWidth = by_slow_waves) -> Interval:
    """Mean of one run's values (seconds of a phase, by iteration), with the interval that they themselves give.

    As ``rate_interval``, which it equals where the values are the iterations' seconds. No bounds for one value alone,
    nor where all are 0. Raises ValueError without values.
    """
    if not values:
        raise ValueError("no value to average")
    mean = mean_of(values)
    if len(values) < 2 or mean <= 0:
        return Interval(mean, None, None)
    return _around(mean, math.log(mean), half_width(values))


def pooled_rate(runs: Sequence[RunSeconds], prior: Prior | None = None) -> Interval:
    """Rate over repeats, per second: total work over total time of all runs, and its two-level interval.

    With R >= 2 runs: Student's t on the logarithms of the R run-level rates. Each of them carries its run's deviation
    and the noise of its iterations, so their spread contains both levels, and the t quantile pays for the few runs:
    R - 1 degrees of freedom, or with a ``prior`` those of the moderated variance (``suite.stats.moderated``). A
    bootstrap that draws runs with replacement sees only (R - 1) / R of the variance between runs and has no such
    quantile: with 3 runs its nominal 95 % cover about 75 to 80 %. With one run: ``rate_interval``, which is too narrow
    for what another run would give.
    """
    if len(runs) == 1:
        return rate_interval(runs[0])
    work = math.fsum(run.work * len(run.seconds) for run in runs)
    value = work / math.fsum(second for run in runs for second in run.seconds)
    logs = log_rates(runs)
    return _around(value, mean_of(logs), pooled_half_width(logs, prior))


def pooled_mean(means: Sequence[float], weights: Sequence[float]) -> Interval:
    """Mean over repeats of what each run's mean is (seconds of a phase, bytes), and its interval as ``pooled_rate``'s.

    The value is weighted, by iterations for what is a mean over them; the bounds are Student's t on the logarithms of
    the runs' means, null with one run and where one of them is 0.
    """
    value = math.fsum(mean * weight for mean, weight in zip(means, weights, strict=True)) / math.fsum(weights)
    if len(means) < 2 or min(means) <= 0:
        return Interval(value, None, None)
    logs = [math.log(mean) for mean in means]
    return _around(value, mean_of(logs), pooled_half_width(logs, None))


def log_rates(runs: Sequence[RunSeconds]) -> list[float]:
    """Natural logarithm of each run's rate."""
    return [math.log(run.rate) for run in runs]


def pooled_half_width(logs: Sequence[float], prior: Prior | None) -> float:
    """Of the 95 % interval of the mean of independent logarithms."""
    found = spread(logs, prior)
    return student_quantile(found.degrees) * math.sqrt(found.variance / len(logs))


def _inflation(deviations: Sequence[float], squares: float) -> float:
    if len(deviations) < 3 or squares == 0:
        return 1.0
    lagged = math.fsum(left * right for left, right in pairwise(deviations))
    correlation = min(max(lagged / squares, 0.0), 0.9)
    return (1 + correlation) / (1 - correlation)


def _around(value: float, log_centre: float, half_width: float) -> Interval:
    """Back from the logarithm; capped where a float ends, and never leaving the value outside by rounding."""
    low, high = math.exp(max(log_centre - half_width, -700.0)), math.exp(min(log_centre + half_width, 700.0))
    return Interval(value, min(low, value), max(high, value))
