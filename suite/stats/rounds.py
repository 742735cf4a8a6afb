"""Rows that took turns, compared by what each round says of their difference.

A machine that gets slower or faster over minutes meets all runs of a round alike: it moves their rates, and hardly the
differences between them. Where the rows of a plan wander together, two of them are compared by the differences of
their log rates within rounds (a paired t test), whose variance is moderated like that of rows. Where they do not, the
differences know half as many degrees of freedom and gain nothing, and rows are compared as independent ones (Welch).

Which of the two it is is decided once for all rows on a machine, never for a pair by itself, and only where the rounds
stand out for sure (``LEVEL``): who took the narrower interval of the two would tell more differences than there are.
"""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from suite.stats.compare import DEFAULT_MARGIN, Comparison, LogDifference, compare, decided
from suite.stats.intervals import RunSeconds, log_rates
from suite.stats.moderated import LEAST_SPREAD, Prior, mean_of, moderate, spread
from suite.stats.quantiles import student_quantile, variance_ratio_quantile
from suite.stats.turns import Dispersion, TurnPair, dispersion, pair_of

#: At which the runs of a round have to be more alike than those of several: where nothing drifts so many plans do it.
LEVEL = 0.005
#: Seconds between the starts of two runs from which on they are no pair.
APART_SECONDS = 3600.0
#: Rounds in common that do also where some runs have no partner, and the least share of the runs of the shorter row.
_ENOUGH_ROUNDS, _ENOUGH_SHARE = 3, 2 / 3


@dataclass(frozen=True)
class Turn:
    """When a run had its turn: its round, in which plan (and launch); ``started`` in Unix seconds, where known.

    ``start``: id that it shares with the runs that it took turns with by iteration; null: it was alone. ``iterations``:
    numbers of those of its iterations that count, one for each of its ``RunSeconds.seconds``; ``begins``: of those that
    began a turn; none: each did.
    """

    plan: Hashable
    round: int
    started: float | None = None
    start: str | None = None
    iterations: tuple[int, ...] = ()
    begins: tuple[int, ...] = ()

    def number(self, iteration: int) -> int:
        """Equal for the iterations of a turn."""
        return bisect_right(self.begins, iteration) if self.begins else iteration


@dataclass(frozen=True)
class InTurns:
    """The runs of a row and their turns, null for a run that was not made in turns with others."""

    runs: tuple[RunSeconds, ...]
    turns: tuple[Turn | None, ...]


@dataclass(frozen=True)
class Rounds:
    """How rows on a machine are compared. ``within``: by the differences within rounds, because they wander together;
    ``prior``: what these share of their variance. ``starts``: how far those of ``rows`` in turns by iteration vary."""

    prior: Prior | None = None
    within: bool = True
    starts: Dispersion | None = None
    rows: tuple[InTurns, ...] = ()


@dataclass(frozen=True)
class Paired:
    """Two rows by the differences within so many ``rounds``; of rows in turns by iteration these are starts, of so many
    ``turns`` in all."""

    difference: LogDifference
    rounds: int
    turns: int | None = None


def find_rounds(groups: Sequence[Sequence[InTurns]], prior: Prior | None, is_known: bool = False) -> Rounds | None:
    """Whether the rows of these groups are to be compared within rounds; null where they are not.

    ``groups``: rows that are compared with each other; ``prior``: what all the rows share of their variance. Rounds
    have to stand out (F test of the rounds against what is left of them, over all groups), unless the machine is known
    to wander (``is_known``) by more than these figures, and intervals are to be narrower by them than without. Rows in
    turns by iteration are compared within turns whatever the machine does.
    """
    turned = [pair for group in groups for one in group[1:] if (pair := starts_of(one, group[0]))]
    starts, rows = (dispersion(turned) if turned else None), tuple(row for group in groups for row in group)
    tables = [table for table in map(_table, groups) if table]
    if tables:
        parts = [_Parts.of(table) for table in tables]
        if is_known or _stand_out(parts):
            shared = moderate([_turned(contrast) for table in tables for contrast in _contrasts(table)])
            if _is_narrower(parts, prior, shared):
                return Rounds(shared, True, starts, rows)
    return Rounds(None, False, starts, rows) if starts else None


def starts_of(a: InTurns, b: InTurns) -> TurnPair | None:
    """What turns say of the log rate of a over that of b; null where the two share too few starts.

    A turn is the mean of its iterations that count on both sides.
    """
    beside = {turn.start: (turn, run) for turn, run in zip(b.turns, b.runs, strict=True) if turn and turn.start}
    found = []
    for turn, run in zip(a.turns, a.runs, strict=True):
        if turn is None or turn.start not in beside:
            continue
        partner, other = beside[turn.start]
        theirs = dict(zip(partner.iterations, other.seconds, strict=True))
        work, logs = run.work / other.work, defaultdict[int, list[float]](list)
        for iteration, seconds in zip(turn.iterations, run.seconds, strict=True):
            if iteration in theirs:
                logs[turn.number(iteration)].append(math.log(work * theirs[iteration] / seconds))
        found.append([mean_of(of_turn) for of_turn in logs.values()])
    return pair_of(found)


def paired(a: InTurns, b: InTurns, rounds: Rounds | None) -> Paired | None:
    """Log rate of a over that of b, from the starts or the rounds that both have; null where these are too few of their
    runs, or rows are not to be compared so.

    Rows in turns by iteration that were not started together are compared by what each is to a third.
    """
    if rounds is None:
        return None
    if rounds.starts:
        if pair := starts_of(a, b):
            return Paired(pair.difference(rounds.starts), pair.starts, pair.turns)
        chains = [(one, other) for row in rounds.rows if (one := starts_of(a, row)) and (other := starts_of(row, b))]
        if chains:
            return min((_chained(*chain, rounds.starts) for chain in chains), key=lambda found: found.difference.error)
    if not rounds.within:
        return None
    pairs = partners(a, b)
    fewest = min(len(a.runs), len(b.runs))
    enough = _ENOUGH_ROUNDS if len(pairs) >= _ENOUGH_SHARE * fewest else fewest
    if len(pairs) < max(2, min(enough, fewest)):
        return None
    logs_a, logs_b = log_rates(a.runs), log_rates(b.runs)
    differences = [logs_a[one] - logs_b[other] for one, other in pairs]
    found = spread(differences, rounds.prior)
    error = math.sqrt(found.variance / len(differences))
    is_moderated = rounds.prior is not None
    return Paired(LogDifference(mean_of(differences), error, found.degrees, is_moderated), len(differences))


def _chained(one: TurnPair, other: TurnPair, starts: Dispersion) -> Paired:
    """The sum of two differences, with degrees of freedom after Welch."""
    first, second = one.difference(starts), other.difference(starts)
    error = math.hypot(first.error, second.error)
    degrees = error**4 / (first.error**4 / first.degrees + second.error**4 / second.degrees)
    difference = LogDifference(first.mean + second.mean, error, degrees, is_moderated=True)
    return Paired(difference, min(one.starts, other.starts), min(one.turns, other.turns))


def compare_in_turns(
    a: InTurns,
    b: InTurns,
    margin: float = DEFAULT_MARGIN,
    prior: Prior | None = None,
    sides: int = 2,
    rounds: Rounds | None = None,
    pairs: int = 1,
) -> Comparison:
    """Within rounds where they are to be used and the two have enough in common; else ``compare``, and raises as it."""
    found = paired(a, b, rounds)
    if found is None:
        return compare(a.runs, b.runs, margin, pairs, prior, sides)
    return decided(found.difference, margin, pairs, sides, found.rounds, found.turns)


def fastest(rows: Sequence[InTurns], rounds: Rounds | None) -> int:
    """Index of the row of the highest geometric mean rate, as ratios are made; where another is ahead of it within
    rounds, of that one.

    A row that missed a slow round has a higher rate for that.
    """
    best = max(range(len(rows)), key=lambda index: (mean_of(log_rates(rows[index].runs)), -index))
    for _ in range(len(rows) if rounds else 0):
        pairs = {index: paired(row, rows[best], rounds) for index, row in enumerate(rows) if index != best}
        ahead = {index: found.difference.mean for index, found in pairs.items() if found}
        first = max(ahead, key=lambda index: ahead[index], default=best)
        if not ahead.get(first, 0.0) > 0:
            break
        best = first
    return best


def partners(a: InTurns, b: InTurns) -> list[tuple[int, int]]:
    """Indices of the runs of one round: started within ``APART_SECONDS``, and no other run of the two in between.

    Runs that took turns by iteration are no such runs."""
    by_turn = {(turn.plan, turn.round): index for index, turn in enumerate(b.turns) if turn and turn.start is None}
    starts = sorted(turn.started for turn in (*a.turns, *b.turns) if turn and turn.started is not None)
    found = []
    for index, turn in enumerate(a.turns):
        other = by_turn.get((turn.plan, turn.round)) if turn and turn.start is None else None
        if turn and other is not None and _are_near(turn, b.turns[other], starts):
            found.append((index, other))
    return found


def _are_near(one: Turn, other: Turn | None, starts: Sequence[float]) -> bool:
    """``starts``: in order."""
    if other is None or one.started is None or other.started is None:
        return False
    first, last = sorted((one.started, other.started))
    return last - first <= APART_SECONDS and bisect_left(starts, last) <= bisect_right(starts, first)


#: Log rates by row, each in the order of the rounds that all rows of a group have.
Table = list[list[float]]


def _table(group: Sequence[InTurns]) -> Table | None:
    """Null for fewer than two rows or rounds in common."""
    if len(group) < 2:
        return None
    first, *others = group
    beside = [dict(partners(first, other)) for other in others]
    common = [index for index in range(len(first.runs)) if all(index in partner for partner in beside)]
    if len(common) < 2:
        return None
    logs = log_rates(first.runs)
    table = [[logs[index] for index in common]]
    for other, partner in zip(others, beside, strict=True):
        logs = log_rates(other.runs)
        table.append([logs[partner[index]] for index in common])
    return table


def _contrasts(table: Table) -> list[list[float]]:
    """Each row less the mean of those before it (Helmert), by round, scaled to the variance of a difference of two.

    Where rows vary alike these are independent of each other.
    """
    found = []
    for before in range(1, len(table)):
        scale = math.sqrt(2 * before / (before + 1))
        columns = zip(*table[: before + 1], strict=True)
        found.append([scale * (column[-1] - mean_of(column[:-1])) for column in columns])
    return found


def _turned(contrast: Sequence[float]) -> list[float]:
    """With the value that is farthest out below the others: a slow run of either row makes it lie on either side."""
    ordered = sorted(contrast)
    middle = ordered[len(ordered) // 2]
    return [-value for value in contrast] if ordered[-1] - middle > middle - ordered[0] else list(contrast)


@dataclass(frozen=True)
class _Parts:
    """Sums of squares of a group: of its rounds, and of what neither rounds nor rows explain; degrees of freedom."""

    of_rounds: float
    rest: float
    rows: int
    rounds: int

    @classmethod
    def of(cls, table: Table) -> "_Parts":
        rows, rounds = len(table), len(table[0])
        by_round = [mean_of(column) for column in zip(*table, strict=True)]
        by_row = [mean_of(row) for row in table]
        centre = mean_of(by_row)
        of_rounds = rows * math.fsum((mean - centre) ** 2 for mean in by_round)
        total = math.fsum((value - mean) ** 2 for row, mean in zip(table, by_row, strict=True) for value in row)
        least = rows * (rounds - 1) * LEAST_SPREAD**2
        return cls(of_rounds, max(total - of_rounds, least * (rows - 1) / rows), rows, rounds)

    @property
    def degrees_of_rounds(self) -> int:
        return self.rounds - 1

    @property
    def degrees_of_rest(self) -> int:
        return (self.rows - 1) * (self.rounds - 1)


def _stand_out(parts: Sequence[_Parts]) -> bool:
    """F test of two-way analyses of variance together.

    Groups may differ in their noise, so that sums have Satterthwaite's degrees (Biometrics Bulletin 2, 1946, p. 110).
    """
    whole = [(part.of_rounds + part.rest) / (part.degrees_of_rounds + part.degrees_of_rest) for part in parts]
    above = math.fsum(part.of_rounds for part in parts) / sum(part.degrees_of_rounds for part in parts)
    below = math.fsum(part.rest for part in parts) / sum(part.degrees_of_rest for part in parts)
    quantile = variance_ratio_quantile(
        _together(whole, [part.degrees_of_rounds for part in parts]),
        _together(whole, [part.degrees_of_rest for part in parts]),
        1 - LEVEL,
    )
    return above > quantile * below


def _together(variances: Sequence[float], degrees: Sequence[int]) -> float:
    sums = [variance * degree for variance, degree in zip(variances, degrees, strict=True)]
    squares = math.fsum(one * one / degree for one, degree in zip(sums, degrees, strict=True))
    return math.fsum(sums) ** 2 / squares


def _is_narrower(parts: Sequence[_Parts], prior: Prior | None, shared: Prior | None) -> bool:
    """Whether the mean pair of rows gets a narrower interval within rounds than from independent rows."""
    rest, total = math.fsum(part.rest for part in parts), math.fsum(part.of_rounds + part.rest for part in parts)
    within = rest / sum(part.degrees_of_rest for part in parts)
    apart = total / sum(part.degrees_of_rounds + part.degrees_of_rest for part in parts)
    free = min(part.rounds for part in parts) - 1
    paired_degrees = free + (shared.degrees if shared else 0.0)
    degrees = 2 * free + (prior.degrees if prior else 0.0)
    return student_quantile(paired_degrees) * math.sqrt(within) < student_quantile(degrees) * math.sqrt(apart)
