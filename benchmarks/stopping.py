"""Does a rule that stops by itself keep the promise of its intervals? Plans played with the suite's own rule, seeded.

``python -m benchmarks.stopping`` prints a line for each figure: what, of which rule, the share, and its bounds.
"""

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from suite.spec.manifest import FEWEST_RUNS, Stopping
from suite.stats.intervals import RunSeconds, log_rates, pooled_rate
from suite.stats.moderated import moderate
from suite.stats.precision import Outlook, Sampled, judge
from suite.stats.rounds import Turn, compare_in_turns, fastest, find_rounds

SEED = 14
ROWS = 16
#: Standard deviation of the runs' log rates.
NOISE = 0.02
#: From one run to the next, on a machine that gets slower and faster.
WANDERING = 0.01
COVERED, ALARMS, POWER = (0.93, 0.97), (0.0, 0.05), (0.85, 1.0)

Bounds = tuple[float, float]
#: what, of which rule, share of the cases, its bounds, runs of a row in the mean
Figure = tuple[str, str, float, Bounds | None, float]


class Played(NamedTuple):
    """A plan at its end."""

    rows: tuple[Sampled, ...]
    outlooks: tuple[Outlook, ...]

    @property
    def runs(self) -> int:
        return sum(len(row.runs) for row in self.rows)


def play(
    rule: Stopping, means: Sequence[float], noises: Sequence[float], sides: int, rng: random.Random, step: float = 0.0
) -> Played:
    """Rounds of one run of each row that needs it, every second one backwards, until none does.

    ``means``: the rows' true log rates; ``sides``: how many rows next to each other are compared; ``step``: by how much
    the machine gets slower or faster from one run to the next (a random walk's standard deviation).
    """
    rows = [Sampled((), 0, 1, group=index // sides) for index in range(len(means))]
    level = clock = 0.0
    while True:
        outlooks = judge(rows, rule)
        if all(outlook.state != "more" for outlook in outlooks):
            return Played(tuple(rows), outlooks)
        active = [index for index, outlook in enumerate(outlooks) if outlook.state == "more"]
        is_odd = max(len(rows[index].runs) for index in active) % 2 == 0
        for index in active if is_odd else reversed(active):
            row, clock, level = rows[index], clock + 10.0, level + (rng.gauss(0, step) if step else 0.0)
            run = RunSeconds(1.0, (math.exp(-rng.gauss(means[index] + level, noises[index])),))
            count = len(row.runs) + 1
            turns = (*row.turns, Turn("plan", count, clock))
            rows[index] = Sampled((*row.runs, run), count, 1, row.group, turns=turns)


def rule_of(least: int = FEWEST_RUNS, most: int = 100, **asked: float) -> Stopping:
    return Stopping(least=least, most=most, iterations="fixed", **asked)


def widths(count: int, rows: int, noises: Sequence[float], precision: float) -> tuple[float, float]:
    """Share of 95 % intervals that hold the true rate when all rows have stopped, and runs of a row."""
    rng = random.Random(SEED)
    inside = runs = total = 0
    for _ in range(count):
        played = play(rule_of(precision=precision), [0.0] * rows, noises, 1, rng)
        prior = moderate([log_rates(row.runs) for row in played.rows])
        intervals = [pooled_rate(row.runs, prior) for row in played.rows]
        inside += sum(one.low is not None and one.high is not None and one.low <= 1 <= one.high for one in intervals)
        runs, total = runs + played.runs, total + rows
    return inside / total, runs / total


def verdicts(
    count: int, sides: int, difference: float, ratio: float, step: float = 0.0
) -> tuple[float, float, float, float]:
    """Shares of groups where a difference is told, that are decided, that are called equivalent; and runs of a row.

    Plans of ``ROWS`` rows; in every group the first row is faster by ``ratio``. ``step`` as for ``play``.
    """
    rng = random.Random(SEED)
    told = decided = equal = runs = groups = 0
    means = [math.log(ratio) if index % sides == 0 else 0.0 for index in range(ROWS - ROWS % sides)]
    for _ in range(count):
        played = play(rule_of(difference=difference), means, [NOISE] * len(means), sides, rng, step)
        prior = moderate([log_rates(row.runs) for row in played.rows])
        runs += played.runs
        starts = range(0, len(means), sides)
        together = [[row.first() for row in played.rows[start : start + sides]] for start in starts]
        rounds = find_rounds(together, prior)
        for group in together:
            best = group[fastest(group, rounds)]
            found = [compare_in_turns(row, best, difference, prior, sides, rounds) for row in group if row is not best]
            apart = [one.verdict != "not distinguishable" for one in found]
            told += any(apart)
            decided += all(one.equivalent or is_apart for one, is_apart in zip(found, apart, strict=True))
            equal += all(one.equivalent for one in found)
            groups += 1
    return told / groups, decided / groups, equal / groups, runs / (count * len(means))


def precision_figures(count: int) -> Iterator[Figure]:
    """Of so many plans each, or as many rows where they are alone."""
    for precision in (0.01, 0.015, 0.02, 0.03, 0.05):
        column = f"{precision:.1%} asked"
        for what, rows, noises in (
            ("row alone", 1, [NOISE]),
            (f"plan of {ROWS} rows", ROWS, [NOISE] * ROWS),
            ("plan, half of its rows twice as noisy", ROWS, [NOISE, 2 * NOISE] * (ROWS // 2)),
        ):
            share, runs = widths(2 * count * ROWS // rows, rows, noises, precision)
            yield f"{what}: rate covered", column, share, COVERED, runs


def difference_figures(count: int) -> Iterator[Figure]:
    """Of so many plans each."""
    for sides in (2, 4):
        for difference in (0.03, 0.05, 0.10):
            column = f"{difference:.0%} asked"
            told, _, equal, runs = verdicts(count, sides, difference, 1.0)
            yield f"{sides} equal rows: a difference told", column, told, ALARMS, runs
            yield f"{sides} equal rows: called equivalent", column, equal, None, runs
            told, _, _, runs = verdicts(count, sides, difference, 1 + difference)
            yield f"one of {sides} rows faster by it: told", column, told, POWER, runs
        told, _, _, runs = verdicts(count, sides, 0.05, 1.0, WANDERING)
        yield f"{sides} equal rows, a walk of {WANDERING:.0%} a run: a difference told", "5% asked", told, ALARMS, runs
        told, _, _, runs = verdicts(count, sides, 0.05, 1.05, WANDERING)
        yield f"one of {sides} rows faster by it, the same walk: told", "5% asked", told, POWER, runs


def main() -> None:
    for what, column, value, bounds, runs in (*precision_figures(100), *difference_figures(100)):
        mark = "" if bounds is None or bounds[0] <= value <= bounds[1] else "  FAILS"
        print(f"{what:80} {column:12} {value:7.3f} {runs:6.1f} runs{mark}", flush=True)


if __name__ == "__main__":
    main()
