"""How many runs it takes to decide: the power of Student's t test between two sides of equally many runs."""

import math
from bisect import bisect_left

from suite.stats.quantiles import student_quantile

#: The chance that the runs that are named decide, if the ratio is what was measured.
POWER = 0.8
#: More runs than this nobody makes.
MOST_RUNS = 1000


def power(runs: int, distance: float, spread: float, level: float, more_degrees: float = 0.0) -> float:
    """Chance that a one-sided test at ``level`` finds a true ``distance`` with so many runs a side.

    ``distance``: between two means of log rates, or of one such difference and what it must leave behind; ``spread``:
    standard deviation of a run's log rate, the same on both sides; ``more_degrees``: of freedom that other rows lend.
    Noncentral t (Johnson, Kotz and Balakrishnan, Continuous Univariate Distributions 2, chapter 31).
    """
    from scipy.special import nctdtr

    degrees = 2 * (runs - 1) + more_degrees
    away = distance / (spread * math.sqrt(2 / runs))
    critical = student_quantile(degrees, 1 - level)
    # far out the tail of the noncentral distribution underflows; the normal one is as good there
    if away > critical + 30:
        return 1.0
    return 1 - float(nctdtr(degrees, away, critical))


def runs_to_decide(
    distance: float, spread: float, level: float, more_degrees: float = 0.0, chance: float = POWER
) -> int | None:
    """The fewest runs a side with which ``power`` is ``chance`` or more; null where that takes over ``MOST_RUNS``."""

    def decides(runs: int) -> bool:
        return power(runs, distance, spread, level, more_degrees) >= chance

    if not distance > 0 or not decides(MOST_RUNS):
        return None
    return 2 + bisect_left(range(2, MOST_RUNS), True, key=decides)
