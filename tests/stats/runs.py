"""Runs by their rates, noisy or not."""

import math
import random

from suite.stats.intervals import RunSeconds


def runs_at(*rates: float) -> tuple[RunSeconds, ...]:
    """One run of two equal iterations for each rate."""
    return tuple(RunSeconds(1.0, (1 / rate, 1 / rate)) for rate in rates)


def noisy_runs(source: random.Random, count: int, rate: float, spread: float) -> tuple[RunSeconds, ...]:
    """``spread``: the standard deviation of the logarithms of their rates."""
    return runs_at(*(rate * math.exp(source.gauss(0, spread)) for _ in range(count)))
