"""When a row has been run often enough: a rule that looks after each run, and whose intervals still hold.

Who stops as soon as an interval is narrow stops where the spread so far is small by luck, so that the interval misses
more often than it says. Three things keep that small here. The first look comes after ``Stopping.least`` runs. What is
narrow must still be so ``CONFIRMING_RUNS`` later: a fixed number of observations more makes up for the sequential end
of an interval of fixed width (Simons, Ann. Math. Stat. 39, 1968). And whether a row goes on depends on the spread
of its runs, which of normal values tells nothing of the error of their mean; on the mean itself only where two rows are
told apart early, for which a look asks ``SURE`` in the place of the usual level.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from suite.spec.stopping import Stopping
from suite.stats.compare import Comparison, LogDifference, compare, welch
from suite.stats.intervals import RunSeconds, log_rates, mean_and_error, pooled_rate, student_quantile
from suite.stats.split import Spread, spread_of

#: Runs more after the first look at which an interval was narrow enough.
CONFIRMING_RUNS = 1
#: Two-sided level at which one look tells two rows apart before their interval is narrow.
SURE = 0.001
#: A row is out of reach where even a spread at the low end of this one-sided confidence would take too many runs.
_HOPE = 0.95
#: Up to so many more runs are tried one by one; beyond, their number grows with the square of the width.
_TRIED = 200

State = Literal["reached", "more", "out of reach", "at the most"]


@dataclass(frozen=True)
class Sampled:
    """The runs of a row so far, in order.

    ``runs``: those that count; ``attempts``: all there were. ``iterations``: counted ones of its next run. ``group``:
    rows of an equal one do equal work and are compared; ``None``: the row is compared with nothing. ``closed``: it gets
    no more runs.
    """

    runs: tuple[RunSeconds, ...]
    attempts: int
    iterations: int
    group: Hashable = None
    closed: bool = False


@dataclass(frozen=True)
class Outlook:
    """Where a row stands. ``half_width``: of its rate's 95 % interval, relative; null with one run.

    ``more_runs``: those it will take, as far as its spread so far tells; null where nothing tells it. ``comparison``: of
    its rate with that of the best of its group, row ``against``, where a difference is asked for; the best has none.
    """

    state: State
    half_width: float | None
    more_runs: int | None
    comparison: Comparison | None = None
    against: int | None = None


def judge(rows: Sequence[Sampled], rule: Stopping) -> tuple[Outlook, ...]:
    """What each row still needs. Equal runs give an equal answer, so that a plan can be taken up again."""
    outlooks = [_by_width(row, rule) for row in rows]
    if rule.difference is not None:
        for members in _groups(rows):
            for index, outlook in _by_difference(members, rows, rule, rule.difference).items():
                outlooks[index] = _both(outlooks[index], outlook)
    return tuple(_at_most(outlook, row, rule) for outlook, row in zip(outlooks, rows, strict=True))


def relative_half_width(runs: Sequence[RunSeconds]) -> float | None:
    """Of the 95 % interval of the rate over repeats: at 0.05 its bounds are a factor of 1.05 from the middle."""
    return math.expm1(_width(runs)) if len(runs) > 1 else None


def _width(runs: Sequence[RunSeconds]) -> float:
    _, error = mean_and_error(log_rates(runs))
    return student_quantile(len(runs) - 1) * error


def _by_width(row: Sampled, rule: Stopping) -> Outlook:
    """As ``judge``, for the width of the row's own interval."""
    runs, shown = row.runs, relative_half_width(row.runs)
    if len(runs) < rule.least:
        return Outlook("more", shown, rule.least - len(runs))
    if rule.precision is None:
        return Outlook("reached", shown, 0)
    target, spread = math.log1p(rule.precision), spread_of(runs)

    def predicted(more: int, scale: float) -> float:
        count = len(runs) + more
        return student_quantile(count - 1) * scale * math.sqrt(spread.after(more, row.iterations) / count)

    waiting = _confirming(lambda count: _width(runs[:count]), target, rule.least, len(runs))
    state, more = waiting or _to_come(predicted, target, len(runs) - 1, row.attempts, rule)
    return Outlook(state, shown, more)


def _confirming(
    width: Callable[[int], float], target: float, least: int, count: int
) -> tuple[State, int] | None:
    """How many runs are to confirm a width that was reached; null where it is not reached now.

    ``width``: after so many runs.
    """
    if width(count) > target:
        return None
    first = next(number for number in range(least, count + 1) if width(number) <= target)
    waiting = max(0, first + CONFIRMING_RUNS - count)
    return ("more" if waiting else "reached", waiting)


def _to_come(
    predicted: Callable[[int, float], float], target: float, degrees: float, attempts: int, rule: Stopping
) -> tuple[State, int]:
    """How many more runs; out of reach where they would be too many even if the runs so far spread widely by chance.

    ``predicted``: the width after so many more runs, with their spread times a factor.
    """
    from scipy.special import chdtri

    lucky = math.sqrt(degrees / float(chdtri(degrees, 1 - _HOPE)))
    beyond = attempts + _needed(predicted, target, lucky) > rule.most
    return ("out of reach" if beyond else "more", _needed(predicted, target, 1.0) + CONFIRMING_RUNS)


def _needed(predicted: Callable[[int, float], float], target: float, scale: float) -> int:
    for more in range(1, _TRIED):
        if predicted(more, scale) <= target:
            return more
    return math.ceil(_TRIED * (predicted(_TRIED, scale) / target) ** 2)


def _groups(rows: Sequence[Sampled]) -> list[list[int]]:
    """Indices of the rows that are compared with each other: those of a group that have a rate."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.group is not None and row.runs:
            found[row.group].append(index)
    return [members for members in found.values() if len(members) > 1]


def _by_difference(members: list[int], rows: Sequence[Sampled], rule: Stopping, margin: float) -> dict[int, Outlook]:
    """As ``judge``, for each row of a group against the best, which needs what the others need of it."""
    best = max(members, key=lambda index: (pooled_rate(rows[index].runs).value, -index))
    pairs = len(members) * (len(members) - 1) // 2
    found = {index: _against(rows[index], rows[best], rule, margin, pairs, best) for index in members if index != best}
    most = max(found.values(), key=_urgency)
    return {**found, best: Outlook(most.state, None, most.more_runs)}


def _against(row: Sampled, best: Sampled, rule: Stopping, margin: float, pairs: int, index: int) -> Outlook:
    """Told apart for sure, or of a ratio so narrow that it must be a difference or an equivalence, wherever it lies."""
    comparison = compare(row.runs, best.runs, margin, pairs)
    missing = [(rule.least - len(each.runs), each.closed) for each in (row, best) if len(each.runs) < rule.least]
    if any(closed for _, closed in missing):
        return Outlook("out of reach", None, None, comparison, index)
    if missing:
        return Outlook("more", None, max(runs for runs, _ in missing), comparison, index)
    difference, target = _difference(row, best), math.log1p(margin)
    if abs(difference.mean) > _reach(difference, SURE / 2 / pairs):
        return Outlook("reached", None, 0, comparison, index)
    spreads = spread_of(row.runs), spread_of(best.runs)

    def width(count: int) -> float:
        return _decided(_difference(row, best, count), pairs)

    def predicted(more: int, scale: float) -> float:
        later = _later(difference.mean, (row, best), spreads, more, scale)
        return 0.0 if abs(later.mean) > _reach(later, SURE / 2 / pairs) else _decided(later, pairs)

    attempts = max(row.attempts, best.attempts)
    waiting = _confirming(width, target, rule.least, max(len(row.runs), len(best.runs)))
    state, more = waiting or _to_come(predicted, target, difference.degrees, attempts, rule)
    return Outlook(state, None, more, comparison, index)


def _difference(row: Sampled, best: Sampled, count: int | None = None) -> LogDifference:
    """Of the first so many runs of each, or of all."""
    difference = welch(row.runs[:count], best.runs[:count])
    assert difference is not None, "no comparison before the least number of runs"
    return difference


def _later(
    mean: float, sides: tuple[Sampled, Sampled], spreads: tuple[Spread, Spread], more: int, scale: float
) -> LogDifference:
    """The difference after so many more runs of each side that gets any, its mean staying what it is."""
    variance, degrees = 0.0, 0
    for side, spread in zip(sides, spreads, strict=True):
        added = 0 if side.closed else more
        variance += spread.after(added, side.iterations) / (spread.count + added)
        degrees += spread.count + added - 1
    return LogDifference(mean, scale * math.sqrt(variance), float(degrees))


def _reach(difference: LogDifference, tail: float) -> float:
    """How far from 0 a mean has to be to leave it out, with this probability on each side."""
    return 0.0 if difference.error == 0 else student_quantile(difference.degrees, 1 - tail) * difference.error


def _decided(difference: LogDifference, pairs: int) -> float:
    """The margin with which a ratio is a difference or an equivalence, wherever it lies: the half-width of its 95 %
    interval, beyond which it differs from 1, and that of the 90 % interval, which then has to fit beside it."""
    return _reach(difference, 0.025 / pairs) + _reach(difference, 0.05 / pairs)


#: A row goes on while anything that is asked of it is within reach.
_ORDER: dict[State, int] = {"reached": 0, "out of reach": 1, "more": 2}


def _urgency(outlook: Outlook) -> tuple[int, int]:
    return _ORDER[outlook.state], outlook.more_runs or 0


def _both(one: Outlook, other: Outlook) -> Outlook:
    """The width of a row and its comparison together."""
    most = max((one, other), key=_urgency)
    return Outlook(most.state, one.half_width, most.more_runs, other.comparison, other.against)


def _at_most(outlook: Outlook, row: Sampled, rule: Stopping) -> Outlook:
    if outlook.state != "more" or row.attempts < rule.most:
        return outlook
    return Outlook("at the most", outlook.half_width, outlook.more_runs, outlook.comparison, outlook.against)
