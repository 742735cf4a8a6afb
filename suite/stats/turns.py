"""Rows that take turns by iteration: their ratio is a mean of log ratios within turns.

Two rows that were started together run one iteration each, one right after the other, so that what slows a machine for
longer than that meets both. A turn gives the difference of two log rates; a start gives their trimmed mean, which one
preempted iteration hardly moves; starts are the sample. How far starts vary is known twice: from the turns within them,
well, and from the few starts themselves, which alone know what a start has of its own (where its memory lies, say). So
the variance is that of turns times a dispersion, which is 1 until the starts of all pairs of a plan say otherwise.

Paired like this, benchmarks on shared machines get intervals several times narrower: Bulej et al., Duet benchmarking,
ICPE 2020 (arXiv 2001.05811).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from suite.stats.moderated import LEAST_SPREAD, mean_of

#: Share of the turns that is cut at each end before their mean is taken.
TRIMMED = 0.2
#: Fewer turns of a start tell too little of how far they vary.
FEWEST_TURNS = 5
#: Degrees of freedom that "starts vary as their turns say" is worth, against those of the starts themselves. More make
#: narrower intervals, which miss more where starts differ by themselves: with 8, three starts that differ by as much
#: again as their turns make them are still covered in nine cases of ten (``benchmarks.turns_check``).
TRUST = 8.0
_MOST_CORRELATED = 0.8


@dataclass(frozen=True)
class Start:
    """Turns of two rows that were started together: the trimmed mean of the differences of log rates, its variance
    were turns independent, and the sums that tell their autocorrelation (of neighbours, and of squares)."""

    mean: float
    variance: float
    neighbours: float
    squares: float
    turns: int


@dataclass(frozen=True)
class Dispersion:
    """What starts vary beyond their turns: a factor of the variance, known with so many degrees of freedom.

    ``factor`` covers the autocorrelation of turns too.
    """

    factor: float
    degrees: float


def start_of(differences: Sequence[float]) -> Start | None:
    """From the log rate of one row over that of the other in each turn; null for fewer than ``FEWEST_TURNS``.

    The variance of a trimmed mean is that of the winsorised values (Yuen, Biometrika 61, 1974).
    """
    count = len(differences)
    if count < FEWEST_TURNS:
        return None
    ordered, cut = sorted(differences), int(TRIMMED * count)
    low, high = ordered[cut], ordered[count - 1 - cut]
    winsorised = [min(max(value, low), high) for value in differences]
    centre = mean_of(winsorised)
    apart = [value - centre for value in winsorised]
    squares = math.fsum(value * value for value in apart)
    least = LEAST_SPREAD**2 / count
    return Start(
        mean=mean_of(ordered[cut : count - cut]),
        variance=max(squares / ((count - 1) * (1 - 2 * cut / count) ** 2 * count), least),
        neighbours=math.fsum(one * other for one, other in pairwise(apart)),
        squares=squares,
        turns=count,
    )


def dispersion(pairs: Sequence[Sequence[Start]]) -> Dispersion:
    """Of the starts of every pair of rows that is compared; of pairs with one start nothing is learned.

    The mean of the ratios of the variance between starts to that which turns explain, drawn to 1.
    """
    starts = [start for pair in pairs for start in pair]
    correlated = _inflation(starts)
    total, degrees = TRUST, TRUST
    for pair in pairs:
        centre, explained = mean_of([start.mean for start in pair]), mean_of([start.variance for start in pair])
        total += math.fsum((start.mean - centre) ** 2 for start in pair) / (explained * correlated)
        degrees += len(pair) - 1
    return Dispersion(correlated * total / degrees, degrees)


def error_of(pair: Sequence[Start], found: Dispersion) -> float:
    """Standard error of the mean of the starts' means, with the dispersion's degrees of freedom."""
    return math.sqrt(found.factor * mean_of([start.variance for start in pair]) / len(pair))


def _inflation(starts: Sequence[Start]) -> float:
    """Of the variance of a mean by the lag-one correlation of turns, whose estimate is too low by 1 / turns."""
    squares = math.fsum(start.squares for start in starts)
    if not squares:
        return 1.0
    bias = len(starts) / math.fsum(start.turns for start in starts)
    correlation = math.fsum(start.neighbours for start in starts) / squares + bias
    correlation = min(max(correlation, 0.0), _MOST_CORRELATED)
    return (1 + correlation) / (1 - correlation)
