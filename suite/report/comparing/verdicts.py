"""JudgedTogether of many pairs of sides at once: ratios of rates whose verdicts and intervals hold together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from suite.stats.compare import ComparisonVerdict, LogDifference, welch
from suite.stats.deciding import POWER, runs_to_decide
from suite.stats.intervals import RunSeconds, log_rates
from suite.stats.moderated import Prior, mean_of, moderate
from suite.stats.multiple import LEVEL, Family, one_sided, together, two_sided

#: Runs of the first and of the second side of one row.
Sides = tuple[Sequence[RunSeconds], Sequence[RunSeconds]]


@dataclass(frozen=True)
class Judged:
    """Rate of the second side over the first. ``difference``: null where nothing could be tested; ``reason``: why."""

    ratio: float
    difference: LogDifference | None
    reason: str | None = None

    @property
    def probability(self) -> float | None:
        """That a ratio is so far from 1 where there is no difference."""
        found = self.difference
        return None if found is None else two_sided(found.mean, found.error, found.degrees)


@dataclass(frozen=True)
class JudgedTogether:
    """One test for each pair of sides, and the outcome of all together."""

    each: tuple[Judged, ...]
    family: Family
    priors: dict[str, Prior | None]

    def verdict(self, place: int) -> ComparisonVerdict:
        """Of one test, which holds with all the others."""
        one = self.each[place]
        if one.probability is None or not any(self.family.positive) or one.probability > self.family.each:
            return "not distinguishable"
        return "faster" if one.ratio > 1 else "slower"

    def bounds(self, place: int) -> tuple[float | None, float | None]:
        """Interval of one ratio: it leaves 1 out exactly where the verdict is a difference."""
        found = self.each[place].difference
        return (None, None) if found is None else found.interval(1 - self.family.each)

    def equal(self, margin: float) -> list[bool | None]:
        """Which are shown to be equal within ``margin``: two one-sided tests each (Schuirmann 1987), all together."""
        most = math.log1p(margin)
        probabilities = [
            max(one_sided(most - sign * found.mean, found.error, found.degrees) for sign in (-1, 1))
            for one in self.each
            if (found := one.difference) is not None
        ]
        positive = iter(together(probabilities).positive)
        return [None if one.difference is None else next(positive) for one in self.each]

    def runs_needed(self, place: int, runs: tuple[int, int], margin: float) -> int | None:
        """Runs a side that would likely show of equal rates that they are equal within ``margin``.

        By the noise alone: the ratio that is seen is as noisy as what it would foretell. Null where that is out of
        reach, and where there is no spread to tell it by.
        """
        found = self.each[place].difference
        if found is None:
            return None
        spread, lent = run_spread(found.error, found.degrees, runs)
        level = LEVEL / len(self.family.positive)
        # both of the one-sided tests must be positive, so each gets half of what may go wrong
        return runs_to_decide(math.log1p(margin), spread, level, lent, 1 - (1 - POWER) / 2)


def run_spread(error: float, degrees: float, runs: tuple[int, int]) -> tuple[float, float]:
    """Standard deviation of one run's log rate that the error of a ratio implies, and the degrees that others lent."""
    return error / math.sqrt(1 / runs[0] + 1 / runs[1]), max(0.0, degrees - (sum(runs) - 2))


def judge_together(
    sides: Sequence[Sides],
    reasons: Sequence[str | None],
    alike: Sequence[str],
    within: Mapping[int, LogDifference] = MappingProxyType({}),
) -> JudgedTogether:
    """Welch's test on the logarithms of the runs' rates, for each pair of sides that has no reason against it.

    ``alike``: of each pair, a word that it has in common with those whose runs vary like its own; the variances are
    moderated by what these share (``suite.stats.moderated``). ``within``: by place, of pairs that took turns by
    iteration, what their turns say of their difference, in Welch's place.
    """
    rates: dict[str, list[list[float]]] = defaultdict(list)
    for pair, reason, word in zip(sides, reasons, alike, strict=True):
        rates[word] += [log_rates(runs) for runs in pair] if reason is None else []
    priors = {word: moderate(groups) for word, groups in rates.items()}
    each = tuple(
        _judged(*pair, priors[word], reason, within.get(place))
        for place, (pair, reason, word) in enumerate(zip(sides, reasons, alike, strict=True))
    )
    return JudgedTogether(each, together([found for one in each if (found := one.probability) is not None]), priors)


def _judged(
    before: Sequence[RunSeconds],
    after: Sequence[RunSeconds],
    prior: Prior | None,
    reason: str | None,
    within: LogDifference | None,
) -> Judged:
    distance = within.mean if within else mean_of(log_rates(after)) - mean_of(log_rates(before))
    ratio = math.exp(min(max(distance, -700.0), 700.0))
    found = (within or _cautious(before, after, prior)) if reason is None else None
    if found is None and reason is None:
        reason = f"{len(before)} and {len(after)} runs: at least 2 a side tell the spread between runs"
    return Judged(ratio, found, reason)


def _cautious(before: Sequence[RunSeconds], after: Sequence[RunSeconds], prior: Prior | None) -> LogDifference | None:
    """With the moderated variance, but only half of the degrees of freedom that the other rows lend.

    Verdicts of many rows are made far out in the tails, where it shows that variances of rows are not drawn from quite
    the distribution that is assumed: with all degrees 16 equal rows of 3 runs, whose noise is between 2 and 5 %, show a
    difference in 8 % of cases, with half in 4 (``tests/report/test_comparing.py`` holds them to 5).
    """
    own, found = welch(after, before), welch(after, before, prior)
    if own is None or found is None:
        return None
    return replace(found, degrees=own.degrees + max(0.0, found.degrees - own.degrees) / 2)
