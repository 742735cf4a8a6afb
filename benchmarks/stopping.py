"""Does a rule that stops by itself keep the promise of its intervals? Plans played with the suite's own rule, seeded.

``python -m benchmarks.stopping`` prints a line for each figure: what, of which rule, the share, and its bounds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from suite.spec.stopping import USUAL_LEAST, Stopping
from suite.stats.compare import compare
from suite.stats.intervals import RunSeconds, log_rates, pooled_rate
from suite.stats.moderated import moderate
from suite.stats.precision import Outlook, Sampled, judge

SEED = 14
ROWS = 16
#: Standard deviation of the runs' log rates.
NOISE = 0.02
COVERED, ALARMS, POWER = (0.93, 0.97), (0.0, 0.05), (0.85, 1.0)

Bounds = tuple[float, float]
Figure = tuple[str, str, float, Bounds | None]


class Played(NamedTuple):
    """A plan at its end."""

    rows: tuple[Sampled, ...]
    outlooks: tuple[Outlook, ...]

    @property
    def runs(self) -> int:
        return sum(len(row.runs) for row in self.rows)


def play(rule: Stopping, means: Sequence[float], noises: Sequence[float], sides: int, rng: random.Random) -> Played:
    """Rounds of one run of each row that needs it, until none does. ``means``: the rows' true log rates; ``sides``: rows
    next to each other that are compared."""
    rows = [Sampled((), 0, 1, group=index // sides) for index in range(len(means))]
    while True:
        outlooks = judge(rows, rule)
        if all(outlook.state != "more" for outlook in outlooks):
            return Played(tuple(rows), outlooks)
        for index, outlook in enumerate(outlooks):
            if outlook.state == "more":
                run = RunSeconds(1.0, (math.exp(-rng.gauss(means[index], noises[index])),))
                rows[index] = Sampled((*rows[index].runs, run), len(rows[index].runs) + 1, 1, rows[index].group)


def rule_of(least: int = USUAL_LEAST, most: int = 100, **asked: float) -> Stopping:
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


def verdicts(count: int, sides: int, difference: float, ratio: float) -> tuple[float, float, float, float]:
    """Shares of groups where a difference is told, that are decided, that are called equivalent; and runs of a row.

    Plans of ``ROWS`` rows; in every group the first row is faster by ``ratio``.
    """
    rng = random.Random(SEED)
    told = decided = equal = runs = groups = 0
    means = [math.log(ratio) if index % sides == 0 else 0.0 for index in range(ROWS - ROWS % sides)]
    for _ in range(count):
        played = play(rule_of(difference=difference), means, [NOISE] * len(means), sides, rng)
        prior = moderate([log_rates(row.runs) for row in played.rows])
        runs += played.runs
        for start in range(0, len(means), sides):
            group = played.rows[start : start + sides]
            best = max(group, key=lambda row: pooled_rate(row.runs).value)
            found = [
                compare(row.runs, best.runs, difference, prior=prior, sides=sides) for row in group if row is not best
            ]
            apart = [one.verdict != "not distinguishable" for one in found]
            told += any(apart)
            decided += all(one.equivalent or is_apart for one, is_apart in zip(found, apart, strict=True))
            equal += all(one.equivalent for one in found)
            groups += 1
    return told / groups, decided / groups, equal / groups, runs / (count * len(means))


def figures(count: int) -> Iterator[Figure]:
    """All of them, of so many plans each."""
    for precision in (0.01, 0.015, 0.02, 0.03, 0.05):
        column = f"{precision:.1%} asked"
        for what, rows, noises in (
            ("row alone", 1, [NOISE]),
            (f"plan of {ROWS} rows", ROWS, [NOISE] * ROWS),
            ("plan, half of its rows twice as noisy", ROWS, [NOISE, 2 * NOISE] * (ROWS // 2)),
        ):
            share, runs = widths(count * ROWS // rows, rows, noises, precision)
            yield f"stopped by --precision, {what}: rate covered", column, share, COVERED
            yield f"stopped by --precision, {what}: runs of a row", column, runs, None
    for sides in (2, 4):
        for difference in (0.03, 0.05, 0.10):
            column = f"{difference:.0%} asked"
            told, decided, equal, runs = verdicts(count, sides, difference, 1.0)
            yield f"stopped by --difference, {sides} equal rows: a difference told", column, told, ALARMS
            yield f"stopped by --difference, {sides} equal rows: called equivalent", column, equal, None
            yield f"stopped by --difference, {sides} equal rows: decided", column, decided, None
            yield f"stopped by --difference, {sides} equal rows: runs of a row", column, runs, None
            told, _, _, runs = verdicts(count, sides, difference, 1 + difference)
            yield f"stopped by --difference, one row faster by it: told", column, told, POWER
            yield f"stopped by --difference, one row faster by it, {sides} rows: runs of a row", column, runs, None


def main() -> None:
    for what, column, value, bounds in figures(100):
        mark = "" if bounds is None or bounds[0] <= value <= bounds[1] else "  FAILS"
        print(f"{what:75} {column:12} {value:7.3f}{mark}", flush=True)


if __name__ == "__main__":
    main()
