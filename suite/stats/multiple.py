"""Many tests at once: verdicts and intervals that hold their level over all rows together.

The procedure is Benjamini and Hochberg's step-up (Journal of the Royal Statistical Society B 57, 1995, p. 289), which
bounds the false discovery rate: of the differences that are shown, the expected share that is not there. Where nothing
differs every difference shown is false, so that the rate is the probability of showing any: equal folders show a
difference in at most 5 % of cases. It was preferred to Holm's family-wise procedure (Scandinavian Journal of Statistics
6, 1979, p. 65) because a loss mostly meets many rows, which then help each other.

Intervals are those of Benjamini and Yekutieli (Journal of the American Statistical Association 100, 2005, p. 71): where
R of m tests are positive at level q, each interval has the coverage 1 - R q / m, which bounds the expected share of
intervals of shown differences that miss their value. An interval leaves its hypothesis out exactly where the test is
positive, because the largest probability that passes is at most R q / m and the next one is above that.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.05
NAME = "Benjamini-Hochberg"


@dataclass(frozen=True)
class Family:
    """The outcome of tests that hold ``LEVEL`` together.

    ``positive``: by test, in the order given. ``each``: two-sided error probability of the interval of each of them.
    """

    positive: tuple[bool, ...]
    each: float


def together(probabilities: Sequence[float], level: float = LEVEL) -> Family:
    """Which of these tests are positive at ``level`` together, by their probabilities (p-values).

    No test: an interval alone at ``level``. Raises ValueError for what is no probability.
    """
    if not 0 < level < 1 or not all(0 <= probability <= 1 for probability in probabilities):
        raise ValueError("levels and probabilities lie between 0 and 1")
    count = len(probabilities)
    if not count:
        return Family((), level)
    found = 0
    for place, probability in enumerate(sorted(probabilities), start=1):
        if probability <= level * place / count:
            found = place
    each = level * max(found, 1) / count
    return Family(tuple(found > 0 and probability <= each for probability in probabilities), each)


def two_sided(distance: float, error: float, degrees: float) -> float:
    """Probability of an estimate at least so far from a value when that is the truth; ``error`` is its standard error.

    Student's t.
    """
    return 2 * one_sided(abs(distance), error, degrees)


def one_sided(distance: float, error: float, degrees: float) -> float:
    """Probability of an estimate at least so far above a value when that is the truth."""
    from scipy.special import stdtr

    return float(stdtr(degrees, -distance / error))
