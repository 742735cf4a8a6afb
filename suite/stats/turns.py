"""Rows that take turns by iteration: their ratio is a mean of log ratios within turns.

Two rows that were started together run one iteration each, one right after the other, so that what slows a machine for
longer than that meets both. A turn gives the difference of two log rates; a start gives their trimmed mean, which one
preempted iteration hardly moves; starts are the sample. Benchmarks that are paired like this have intervals several
times narrower on shared machines (Bulej et al., Duet benchmarking, ICPE 2020, arXiv 2001.05811).

How far the means of starts vary is known twice: from the turns within them, well, and from the few starts themselves,
which alone know what a start has of its own (where its memory lies, say). The variance is that of turns times a
dispersion (a Birge ratio): 1, until starts say otherwise. The less turns vary, the less they tell of what starts may
differ by, and the fewer degrees of freedom their word is worth. All constants were chosen by simulation
(``benchmarks.iteration_turns``).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from suite.stats.compare import LogDifference
from suite.stats.moderated import LEAST_SPREAD, mean_of

#: Share of the turns that is cut at each end before their mean is taken.
TRIMMED = 0.2
#: Fewer turns of a start tell too little of how far they vary; fewer starts tell nothing of how far these do.
FEWEST_TURNS, FEWEST_STARTS = 5, 2
#: Degrees of freedom that "starts vary as their turns say" is worth, against those of the starts, where turns vary far.
TRUST = 6.0
#: What starts have of their own where turns tell nothing of it, as a standard deviation of log ratios: where they vary
#: by less, starts are believed rather than turns.
OWN_SPREAD = 0.01
_LEAST_CORRELATED, _MOST_CORRELATED = -0.2, 0.9


@dataclass(frozen=True)
class Dispersion:
    """Of all pairs of a plan: sum of squares of starts' means, each over what turns explain of it, and its degrees."""

    squares: float
    degrees: int


@dataclass(frozen=True)
class TurnPair:
    """Two rows over the starts that they share: ``mean`` of the log ratios of so many ``turns`` in all.

    ``explained``: variance of a start's mean, as turns explain it; ``squares``: as in ``Dispersion``.
    """

    mean: float
    explained: float
    squares: float
    starts: int
    turns: int

    @property
    def trust(self) -> float:
        """Degrees of freedom that the word of its turns is worth."""
        return TRUST * self.explained / (self.explained + OWN_SPREAD**2)

    def factor(self, shared: Dispersion) -> float:
        """The dispersion that its starts have, drawn to that of all pairs of a plan, or to 1 where that is lower."""
        centre = max(1.0, (self.trust + shared.squares) / (self.trust + shared.degrees))
        return (self.trust * centre + self.squares) / (self.trust + self.starts - 1)

    def difference(self, shared: Dispersion) -> LogDifference:
        """Degrees of freedom are of a sum of which a part is known (Satterthwaite, Biometrics Bulletin 2, 1946)."""
        error = math.sqrt(max(self.factor(shared) * self.explained, LEAST_SPREAD**2) / self.starts)
        degrees = (self.trust + self.starts - 1) ** 2 / (self.starts - 1)
        return LogDifference(self.mean, error, degrees, is_moderated=True)

    def own_variance(self, shared: Dispersion) -> float:
        """What starts vary by beyond their turns, taken for ``OWN_SPREAD`` at least."""
        return max((self.factor(shared) - 1) * self.explained, OWN_SPREAD**2)


def pair_of(starts: Sequence[Sequence[float]]) -> TurnPair | None:
    """From the log rate of one row over that of the other in each turn of each start, which count by their turns.

    Null where fewer than ``FEWEST_STARTS`` have ``FEWEST_TURNS``. The variance of a trimmed mean is that of the
    winsorised values (Yuen, Biometrika 61, 1974), times (1 + r) / (1 - r) for their lag-one correlation r, which is
    estimated too low by 1 / turns, and is negative where orders are reversed from turn to turn.
    """
    found = [_trimmed(differences) for differences in starts if len(differences) >= FEWEST_TURNS]
    if len(found) < FEWEST_STARTS:
        return None
    turns = sum(len(apart) for _, apart, _ in found)
    squares = math.fsum(value * value for _, apart, _ in found for value in apart)
    neighbours = math.fsum(one * other for _, apart, _ in found for one, other in pairwise(apart))
    correlation = neighbours / squares + len(found) / turns if squares else 0.0
    correlation = min(max(correlation, _LEAST_CORRELATED), _MOST_CORRELATED)
    per_turn = max(squares / math.fsum(kept * (kept - 1) / len(apart) for _, apart, kept in found), LEAST_SPREAD**2)
    per_turn *= (1 + correlation) / (1 - correlation)
    mean = math.fsum(len(apart) * mean for mean, apart, _ in found) / turns
    between = math.fsum(len(apart) * (each - mean) ** 2 for each, apart, _ in found)
    return TurnPair(mean, per_turn * len(found) / turns, between / per_turn, len(found), turns)


def _trimmed(values: Sequence[float]) -> tuple[float, list[float], int]:
    """Their trimmed mean, the winsorised ones around their own mean, and how many were kept."""
    ordered, cut = sorted(values), int(TRIMMED * len(values))
    kept = ordered[cut : len(ordered) - cut]
    winsorised = [min(max(value, kept[0]), kept[-1]) for value in values]
    centre = mean_of(winsorised)
    return mean_of(kept), [value - centre for value in winsorised], len(kept)


def dispersion(pairs: Sequence[TurnPair]) -> Dispersion:
    """Of all pairs of a plan together."""
    return Dispersion(math.fsum(pair.squares for pair in pairs), sum(pair.starts - 1 for pair in pairs))
