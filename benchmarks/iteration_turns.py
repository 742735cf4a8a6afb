"""Rows that took turns by iteration on machines that drift: what their ratios promise, seeded.

Part of ``python -m benchmarks.stats_check``. Both rows of a turn run one after the other, in a drawn order that the
next one has reversed, so that they share what lasts for longer than an iteration and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy

from benchmarks.turns_check import Bounds, Figure
from suite.stats.intervals import RunSeconds
from suite.stats.rounds import InTurns, Turn, compare_in_turns, find_rounds

#: Of an iteration, and of the speed between two starts, as standard deviations of logarithms.
ITERATION_NOISE, BETWEEN_STARTS = 0.06, 0.1
#: Between starts, of what a start itself adds to a ratio: as much as 40 turns leave of its mean where nothing drifts.
OWN = 0.014
FASTER, MARGIN = 0.05, 0.05
COVERED, POWER = (0.93, 0.985), (0.9, 1.0)
#: Starts and turns of each; the pairs of a plan.
SHAPES, PAIRS = ((2, 40), (3, 40), (5, 20)), 4
SEED = 21

Generator = numpy.random.Generator
#: (iterations) -> log seconds that the machine adds to each, one after the other
Machine = Callable[[Generator, int], numpy.ndarray]


def still(rng: Generator, count: int) -> numpy.ndarray:
    return numpy.zeros(count)


def walking(rng: Generator, count: int) -> numpy.ndarray:
    return rng.normal(0, 0.03, count).cumsum()


def bursts(rng: Generator, count: int) -> numpy.ndarray:
    """Others take the machine for a few iterations, some more than others."""
    added, at = numpy.zeros(count), 0
    while at < count:
        at += 1 + int(rng.exponential(8))
        lasts = 1 + int(rng.exponential(3))
        added[at : at + lasts] += rng.exponential(0.25)
        at += lasts
    return added


def two_modes(rng: Generator, count: int) -> numpy.ndarray:
    """A quarter slower for twenty iterations in the mean, then as before."""
    return 0.25 * ((rng.random(count) < 0.05).cumsum() % 2)


def neighbour(rng: Generator, count: int) -> numpy.ndarray:
    """Somebody who works periodically."""
    waves = numpy.sin(2 * math.pi * numpy.arange(count) / rng.uniform(3, 12) + rng.uniform(0, 2 * math.pi))
    return 0.15 * (waves > 0.3)


def shared(rng: Generator, count: int) -> numpy.ndarray:
    """As a shared virtual machine: it wanders, and one iteration in eight loses its processor for a while."""
    return walking(rng, count) + (rng.random(count) < 0.12) * rng.exponential(0.3, count)


MACHINES: dict[str, Machine] = {
    "still": still,
    "a random walk, 3 % an iteration": walking,
    "bursts of steal": bursts,
    "two modes": two_modes,
    "a periodic neighbour": neighbour,
    "a shared machine": shared,
}


def pair(rng: Generator, machine: Machine, starts: int, turns: int, ratio: float, own: float) -> list[InTurns]:
    """Two rows, the first ``ratio`` times as fast; ``own``: spread of what each start adds to that."""
    runs: tuple[list[RunSeconds], list[RunSeconds]] = ([], [])
    when = [Turn("plan", number, 60.0 * number, f"s{number}", tuple(range(turns))) for number in range(starts)]
    for _ in range(starts):
        logs = rng.normal(0, BETWEEN_STARTS) + machine(rng, 2 * turns) + rng.normal(0, ITERATION_NOISE, 2 * turns)
        by_turn = logs.reshape(turns, 2)
        backwards = numpy.repeat(rng.random((turns + 1) // 2) < 0.5, 2)[:turns] ^ (numpy.arange(turns) % 2 == 1)
        by_turn[backwards] = by_turn[backwards, ::-1]
        by_turn[:, 0] -= math.log(ratio) + rng.normal(0, own)
        for side, found in enumerate(runs):
            found.append(RunSeconds(1.0, tuple(numpy.exp(by_turn[:, side]).tolist())))
    return [InTurns(tuple(each), tuple(when)) for each in runs]


def figures(count: int) -> Iterator[Figure]:
    """Of so many plans of four pairs each."""
    for name, machine in MACHINES.items():
        for starts, turns in SHAPES:
            yield from _covered(name, machine, starts, turns, 0.0, count, COVERED)
        yield from _told(name, machine, count)
    for starts, turns in SHAPES:
        yield from _covered("starts that differ by themselves", still, starts, turns, OWN, count, None)


def _covered(
    name: str, machine: Machine, starts: int, turns: int, own: float, count: int, bounds: Bounds | None
) -> Iterator[Figure]:
    """The interval of an A/A's ratio: how often it holds 1, and so tells no difference."""
    rng, held, half_widths = numpy.random.default_rng(SEED), [], []
    for _ in range(count):
        pairs = [pair(rng, machine, starts, turns, 1.0, own) for _ in range(PAIRS)]
        rounds = find_rounds(pairs, None)
        for one, other in pairs:
            ratio = compare_in_turns(one, other, rounds=rounds).ratio
            assert ratio.low is not None and ratio.high is not None, "a start is enough"
            held.append(ratio.low <= 1 <= ratio.high)
            half_widths.append(math.log(ratio.high / ratio.low) / 2)
    column = f"{starts} x {turns}"
    yield f"{name}: intervals that hold the ratio", column, float(numpy.mean(held)), bounds
    yield f"{name}: their half-width", column, float(numpy.mean(half_widths)), None


def _told(name: str, machine: Machine, count: int) -> Iterator[Figure]:
    rng, told = numpy.random.default_rng(SEED), []
    for _ in range(count):
        one, other = pair(rng, machine, 3, 40, 1 + FASTER, 0.0)
        told.append(compare_in_turns(one, other, MARGIN, rounds=find_rounds([[one, other]], None)).verdict == "faster")
    yield f"{name}: {FASTER:.0%} faster, told", "3 x 40", float(numpy.mean(told)), POWER


def main() -> None:
    for what, column, value, bounds in figures(100):
        mark = "" if bounds is None or bounds[0] <= value <= bounds[1] else "  FAILS"
        print(f"{what:70} {column:8} {value:7.3f}{mark}", flush=True)


if __name__ == "__main__":
    main()
