"""Rows that took turns on a machine that gets slower and faster: how often the ranking tells a difference, seeded.

Part of ``python -m benchmarks.stats_check``; the rows of a plan follow each other in each round, every second one
backwards, as ``suite run`` has them do.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy

from suite.stats.intervals import RunSeconds
from suite.stats.moderated import Prior, moderate
from suite.stats.rounds import InTurns, Rounds, Turn, compare_in_turns, fastest, find_rounds

ROWS, ITERATIONS = 16, 20
#: Spread of runs and of the iterations of a run, as standard deviations of logarithms.
RUN_NOISE, ITERATION_NOISE = 0.02, 0.03
FASTER = 0.05
SEED = 14
ALARMS, OF_PAIRS, OF_FOURS = (0.0, 0.05), (0.85, 1.0), (0.75, 1.0)
#: Of few rows the paired test is exact, so that half of all simulations are above its level by chance.
ALARMS_ALONE = (0.0, 0.06)

Bounds = tuple[float, float]
Generator = numpy.random.Generator
#: what, column, share of the cases, its bounds
Figure = tuple[str, str, float, Bounds | None]
#: (runs of a row) -> log seconds that the machine adds, by row and run
Machine = Callable[[Generator, int], numpy.ndarray]


def place(row: int, number: int) -> int:
    """Which run of the plan, in time, a row's run of this round is; both from 0."""
    return number * ROWS + (ROWS - 1 - row if number % 2 else row)


def still(rng: Generator, runs: int) -> numpy.ndarray:
    return numpy.zeros((ROWS, runs))


def between_rounds(spread: float) -> Machine:
    """Every round is slower or faster as a whole."""
    return lambda rng, runs: numpy.tile(rng.normal(0, spread, runs), (ROWS, 1))


def wandering(step: float) -> Machine:
    """A random walk over all runs in time, so that runs of a round differ by it too."""

    def make(rng: Generator, runs: int) -> numpy.ndarray:
        walk = rng.normal(0, step, ROWS * runs).cumsum()
        return numpy.array([[walk[place(row, number)] for number in range(runs)] for row in range(ROWS)])

    return make


MACHINES: dict[str, Machine] = {
    "a machine that stands still": still,
    "10 % between rounds": between_rounds(0.10),
    "2 % between rounds": between_rounds(0.02),
    "a random walk, 3 % a run": wandering(0.03),
}


class Played(NamedTuple):
    """A plan: its rows, what they share, and for groups of so many ``sides`` whether they are compared in rounds."""

    groups: list[list[InTurns]]
    prior: Prior | None
    rounds: Rounds | None

    def tells(self, row: InTurns, best: InTurns) -> bool:
        """Whether the row is told to be slower or faster."""
        sides = len(self.groups[0])
        found = compare_in_turns(row, best, prior=self.prior, sides=sides, rounds=self.rounds)
        return found.verdict != "not distinguishable"

    def has_alarm(self, group: Sequence[InTurns]) -> bool:
        best = group[fastest(group, self.rounds)]
        return any(self.tells(row, best) for row in group if row is not best)


def play(machine: Machine, count: int, runs: int, sides: int, faster: float, rows: int = ROWS) -> Iterator[Played]:
    """So many plans, the first row of each faster by a share; of fewer ``rows`` only the first ones are run."""
    rng = numpy.random.default_rng(SEED)
    noise = math.hypot(RUN_NOISE, ITERATION_NOISE / math.sqrt(ITERATIONS))
    turns = [tuple(Turn("plan", number, 10.0 * place(row, number)) for number in range(runs)) for row in range(rows)]
    for _ in range(count):
        logs = (rng.normal(0, noise, (ROWS, runs)) + machine(rng, runs))[:rows]
        logs[0] -= math.log1p(faster)
        made = [
            InTurns(tuple(RunSeconds(1.0, (math.exp(second),)) for second in row), turn)
            for row, turn in zip(logs.tolist(), turns, strict=True)
        ]
        prior = moderate((-logs).tolist())
        groups = [made[start : start + sides] for start in range(0, rows, sides)]
        yield Played(groups, prior, find_rounds(groups, prior))


def figures(count: int) -> Iterator[Figure]:
    """Of so many plans each."""
    for name, machine in MACHINES.items():
        for sides, bounds in ((2, OF_PAIRS), (4, OF_FOURS)):
            for runs in (3, 5):
                column = f"{runs} runs"
                equal = list(play(machine, count, runs, sides, 0.0))
                alarms = [plan.has_alarm(group) for plan in equal for group in plan.groups]
                yield f"{name}: {sides} equal rows, a difference told", column, float(numpy.mean(alarms)), ALARMS
                alone = [plan.has_alarm(plan.groups[0]) for plan in play(machine, 4 * count, runs, sides, 0.0, sides)]
                what = f"{name}: the same, of a plan of {sides} rows"
                yield what, column, float(numpy.mean(alone)), ALARMS_ALONE
                slower = [
                    plan.tells(row, plan.groups[0][0])
                    for plan in play(machine, 2 * count, runs, sides, FASTER)
                    for row in plan.groups[0][1:]
                ]
                is_bound = machine is still and runs == 5
                what = f"{name}: one of {sides} rows {FASTER:.0%} faster, told"
                yield what, column, float(numpy.mean(slower)), bounds if is_bound else None
                within = float(numpy.mean([plan.rounds is not None for plan in equal]))
                yield f"{name}: plans of {sides} rows a group compared within rounds", column, within, None


def main() -> None:
    for what, column, value, bounds in figures(100):
        mark = "" if bounds is None or bounds[0] <= value <= bounds[1] else "  FAILS"
        print(f"{what:80} {column:16} {value:7.3f}{mark}", flush=True)


if __name__ == "__main__":
    main()
