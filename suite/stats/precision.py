"""When a row has been run often enough: a rule that looks after each run, and whose intervals still hold.

Who stops as soon as an interval is narrow stops where the spread so far is small by luck, so that the interval misses
more often than it says. What keeps that small here was chosen by simulation (``benchmarks.stopping``):

- the first look comes after ``Stopping.least`` runs;
- what is narrow must still be so some runs later: a fixed number of observations more makes up for the sequential end
  of an interval of fixed width (Simons, Ann. Math. Stat. 39, 1968);
- whether a row goes on depends on the spread of its runs, which of normal values tells nothing of the error of their
  mean. On the mean itself it depends only where two rows are compared: they are told apart early at the level ``SURE``,
  and a difference that a narrow interval tells must be ``FIRM``, so that many looks do not add up to many false ones.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from suite.spec.manifest import Stopping
from suite.stats.compare import DEFAULT_MARGIN, Comparison, LogDifference, welch
from suite.stats.intervals import RunSeconds, log_rates, pooled_half_width
from suite.stats.moderated import Prior, moderate
from suite.stats.quantiles import student_quantile
from suite.stats.rounds import InTurns, Paired, Rounds, Turn, compare_in_turns, fastest, find_rounds, paired
from suite.stats.split import RowSpread, spread_of

#: Runs more after the first look at which an interval was narrow enough, where rows share their variance; and where
#: each row has its own alone.
CONFIRMING_RUNS, CONFIRMING_ALONE = 2, 4
#: The same for a comparison, whose end has a level of its own.
CONFIRMING_COMPARISON = 1
#: Two-sided level at which one look tells two rows apart before their interval is narrow.
SURE = 0.0001
#: Two-sided level of a difference at the end: one that 95 % intervals tell and this level does not gets more runs.
FIRM = 0.01
#: A row is out of reach where even a spread at the low end of this one-sided confidence would take too many runs.
_HOPE = 0.95
#: Up to so many more runs the width is predicted; beyond, their number grows with the square of the width.
_TRIED = 200

State = Literal["reached", "more", "out of reach", "at the most"]


@dataclass(frozen=True)
class Sampled:
    """The runs of a row so far, in order.

    ``runs``: those that count; ``attempts``: all there were. ``iterations``: counted ones of its next run. ``group``:
    rows of an equal one do equal work and are compared; ``None``: the row is compared with nothing. ``closed``: it gets
    no more runs. ``turns``: of each run; without them the runs are taken for independent ones.
    """

    runs: tuple[RunSeconds, ...]
    attempts: int
    iterations: int
    group: Hashable = None
    closed: bool = False
    turns: tuple[Turn | None, ...] = ()

    @property
    def in_turns(self) -> bool:
        """Whether its runs took turns by iteration: its ratios are asked for then, and no width of its rate."""
        return any(turn is not None and turn.start is not None for turn in self.turns)

    def first(self, count: int | None = None) -> InTurns:
        """The first so many runs with their turns, or all."""
        return InTurns(self.runs[:count], (self.turns or (None,) * len(self.runs))[:count])


@dataclass(frozen=True)
class Outlook:
    """Where a row stands. ``half_width``: of its rate's 95 % interval, relative, or of its ratio's where rows were in
    turns by iteration; null with one run.

    ``more_runs``: those it will take, as far as its spread so far tells; null where nothing tells it. ``comparison``:
    of its rate with that of the best of its group, row ``against``, where a difference is asked for; the best has none.
    """

    state: State
    half_width: float | None
    more_runs: int | None
    comparison: Comparison | None = None
    against: int | None = None


def judge(rows: Sequence[Sampled], rule: Stopping) -> tuple[Outlook, ...]:
    """What each row still needs. Equal runs give an equal answer, so that a plan can be taken up again.

    Widths and comparisons are those of a report of these rows: with what they share of their variance (``moderate``).
    """
    prior = moderate([log_rates(row.runs) for row in rows])
    outlooks = [_by_width(row, rule, prior) for row in rows]
    groups = _groups(rows)
    if rule.difference is None:
        groups = [members for members in groups if rows[members[0]].in_turns]
    if groups:
        rounds = find_rounds([[rows[index].first() for index in members] for members in groups], prior)
        for members in groups:
            for index, outlook in _by_difference(members, rows, rule, prior, rounds).items():
                outlooks[index] = _both(outlooks[index], outlook)
    return tuple(_at_most(outlook, row, rule) for outlook, row in zip(outlooks, rows, strict=True))


def _by_width(row: Sampled, rule: Stopping, prior: Prior | None) -> Outlook:
    """As ``judge``, for the width of the row's own interval."""
    logs, count = log_rates(row.runs), len(row.runs)
    shown = math.expm1(pooled_half_width(logs, prior)) if count > 1 else None
    if count < rule.least:
        return Outlook("more", shown, rule.least - count)
    if rule.precision is None or row.in_turns:
        return Outlook("reached", shown, 0)
    target, now = math.log1p(rule.precision), spread_of(row.runs, prior)

    def predicted(more: int, scale: float) -> float:
        error = math.sqrt(now.after(more, row.iterations) / (now.count + more))
        return student_quantile(now.degrees + more) * scale * error

    confirming = CONFIRMING_ALONE if prior is None else CONFIRMING_RUNS
    waiting = _confirming(lambda first: pooled_half_width(logs[:first], prior), target, rule.least, count, confirming)
    state, more = waiting or _to_come(predicted, target, now.degrees, row.attempts, rule)
    return Outlook(state, shown, more if waiting else more + confirming)


def _confirming(
    width: Callable[[int], float], target: float, least: int, count: int, confirming: int
) -> tuple[State, int] | None:
    """How many runs are to confirm a width that was reached; null where it is not reached now.

    ``width``: after so many runs.
    """
    if width(count) > target:
        return None
    first = next(number for number in range(least, count + 1) if width(number) <= target)
    waiting = max(0, first + confirming - count)
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
    return ("out of reach" if beyond else "more", _needed(predicted, target, 1.0))


def _needed(predicted: Callable[[int, float], float], target: float, scale: float) -> int:
    if predicted(_TRIED, scale) <= target:
        return 1 + bisect_left(range(1, _TRIED), True, key=lambda more: predicted(more, scale) <= target)
    return math.ceil(_TRIED * (predicted(_TRIED, scale) / target) ** 2)


def _groups(rows: Sequence[Sampled]) -> list[list[int]]:
    """Indices of the rows that are compared with each other: those of a group that have a rate."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        if row.group is not None and row.runs:
            found[row.group].append(index)
    return [members for members in found.values() if len(members) > 1]


def _by_difference(
    members: list[int], rows: Sequence[Sampled], rule: Stopping, prior: Prior | None, rounds: Rounds | None
) -> dict[int, Outlook]:
    """As ``judge``, for each row of a group against the best, which needs what the others need of it."""
    best = members[fastest([rows[index].first() for index in members], rounds)]
    margin = rule.difference or DEFAULT_MARGIN
    found = {
        index: _Pair(rows[index], rows[best], margin, len(members), prior, rounds).outlook(rule, best)
        for index in members
        if index != best
    }
    most = max(found.values(), key=_urgency)
    if most.state == "more" and rows[best].in_turns:  # a start is one of the whole group
        found = {index: replace(one, state="more", more_runs=most.more_runs) for index, one in found.items()}
    return {**found, best: Outlook(most.state, most.half_width, most.more_runs)}


@dataclass(frozen=True)
class _Pair:
    """A row and the best of its group of so many ``sides``, and what rows of the plan share."""

    row: Sampled
    best: Sampled
    margin: float
    sides: int
    prior: Prior | None
    rounds: Rounds | None

    def outlook(self, rule: Stopping, index: int) -> Outlook:
        """Told apart for sure, or of a ratio so narrow that it must be a difference or an equivalence.

        ``index``: of the best.
        """
        row, best = self.row, self.best
        comparison = compare_in_turns(row.first(), best.first(), self.margin, self.prior, self.sides, self.rounds)
        missing = [(rule.least - len(each.runs), each.closed) for each in (row, best) if len(each.runs) < rule.least]
        if any(closed for _, closed in missing):
            return Outlook("out of reach", None, None, comparison, index)
        if missing:
            return Outlook("more", None, max(runs for runs, _ in missing), comparison, index)
        difference = self._now
        if self._within and self._within.turns is not None:
            return self._by_turns(rule, comparison, index)
        if self._is_sure(difference):
            return Outlook("reached", None, 0, comparison, index)
        target, attempts = math.log1p(self.margin), max(row.attempts, best.attempts)
        most = max(len(row.runs), len(best.runs))

        def width(count: int) -> float:
            return self._decided(self._difference(count))

        waiting = _confirming(width, target, rule.least, most, CONFIRMING_COMPARISON)
        if waiting is None:
            state, more = _to_come(self._predicted, target, difference.degrees, attempts, rule)
            return Outlook(state, None, more + CONFIRMING_COMPARISON, comparison, index)
        if waiting[0] == "reached" and self._is_weak(difference):
            return Outlook("more", None, 1, comparison, index)
        return Outlook(waiting[0], None, waiting[1], comparison, index)

    def _by_turns(self, rule: Stopping, comparison: Comparison, index: int) -> Outlook:
        """Of rows in turns by iteration: a ratio of the width that is asked for, told apart or equivalent.

        Their width comes from many turns, so that it needs no confirming run. Equivalence has to hold at 95 %: who
        looks again and again for it at 90 % finds it too often.
        """
        difference, starts = self._now, self._within.rounds if self._within else 0
        reach, margin, lacking = self._reach(difference, 0.95), math.log1p(self.margin), 0.0
        if rule.precision is not None:
            lacking = reach / math.log1p(rule.precision)
        if rule.difference is not None and not (self._is_sure(difference) or abs(difference.mean) + reach <= margin):
            lacking = max(lacking, self._decided(difference) / margin)

        def predicted(more: int, scale: float) -> float:
            added = 0 if self.row.closed or self.best.closed else more
            return lacking * scale * math.sqrt(starts / (starts + added))

        state: State = "reached"
        more = 0
        if lacking > 1:
            state, more = _to_come(predicted, 1.0, difference.degrees, self.row.attempts, rule)
        elif rule.difference is not None and self._is_weak(difference):
            state, more = "more", 1
        return Outlook(state, math.expm1(reach), more, comparison, index)

    @cached_property
    def _now(self) -> LogDifference:
        return self._difference()

    @cached_property
    def _within(self) -> Paired | None:
        return self._paired(None)

    def _difference(self, count: int | None = None) -> LogDifference:
        """Of the first so many runs of each, or of all; within rounds where all of them are compared so."""
        within = self._within and (self._within if count is None else self._paired(count))
        if within:
            return within.difference
        difference = welch(self.row.runs[:count], self.best.runs[:count], self.prior)
        assert difference is not None, "no comparison before the least number of runs"
        return difference

    def _paired(self, count: int | None) -> Paired | None:
        return paired(self.row.first(count), self.best.first(count), self.rounds)

    def _predicted(self, more: int, scale: float) -> float:
        """What ``_decided`` should be after so many more runs of each side that gets any; 0 where it is sure then."""
        now, within, variance, degrees = self._now, self._within, 0.0, 0.0
        if within:
            degrees = 0.0 if self.row.closed or self.best.closed else float(more)
            variance = now.error**2 * within.rounds / (within.rounds + degrees)
        else:
            for side, known in zip((self.row, self.best), self._spreads, strict=True):
                added = 0 if side.closed else more
                variance += known.after(added, side.iterations) / (known.count + added)
                degrees += added
        error = scale * math.sqrt(variance)
        later = LogDifference(now.mean, error, now.degrees + degrees, now.is_moderated)
        return 0.0 if self._is_sure(later) else self._decided(later)

    @cached_property
    def _spreads(self) -> tuple[RowSpread, RowSpread]:
        return spread_of(self.row.runs, self.prior), spread_of(self.best.runs, self.prior)

    def _is_sure(self, difference: LogDifference) -> bool:
        return abs(difference.mean) > self._reach(difference, 1 - SURE)

    def _is_weak(self, difference: LogDifference) -> bool:
        """Whether it is a difference at 95 % that a run more may take away."""
        return self._reach(difference, 0.95) < abs(difference.mean) <= self._reach(difference, 1 - FIRM)

    def _decided(self, difference: LogDifference) -> float:
        """The margin with which a ratio is a difference or an equivalence, wherever it lies: the half-width of its 95 %
        interval, beyond which it differs from 1, and that of the 90 % interval, which then has to fit beside it."""
        return self._reach(difference, 0.95) + self._reach(difference, 0.90)

    def _reach(self, difference: LogDifference, confidence: float) -> float:
        low, high = difference.interval(confidence, self.sides)
        return math.log(high / low) / 2


#: A row goes on while anything that is asked of it is within reach.
_ORDER: dict[State, int] = {"reached": 0, "out of reach": 1, "more": 2}


def _urgency(outlook: Outlook) -> tuple[int, int]:
    return _ORDER[outlook.state], outlook.more_runs or 0


def _both(one: Outlook, other: Outlook) -> Outlook:
    """The width of a row and its comparison together."""
    most = max((one, other), key=_urgency)
    width = one.half_width if other.half_width is None else other.half_width
    return Outlook(most.state, width, most.more_runs, other.comparison, other.against)


def _at_most(outlook: Outlook, row: Sampled, rule: Stopping) -> Outlook:
    if outlook.state != "more" or row.attempts < rule.most:
        return outlook
    return replace(outlook, state="at the most")
