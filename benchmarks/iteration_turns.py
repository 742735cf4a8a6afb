"""Rows that take turns by iteration on machines that drift: what their ratios promise, seeded.

Part of ``python -m benchmarks.stats_check``. The rows of a round of turns run one after the other, in an order that is
drawn and then reversed, so that they share what lasts for longer than an iteration and nothing else.
"""

import math
from collections.abc import Callable, Iterator

import numpy

from benchmarks.stopping import rule_of
from benchmarks.turns_check import ALARMS, SEED, Bounds, Figure
from suite.stats.intervals import RunSeconds
from suite.stats.precision import Sampled, judge
from suite.stats.rounds import InTurns, Turn, compare_in_turns, fastest, find_rounds

COVERED, POWER = (0.93, 0.97), (0.9, 1.0)
#: Rows are faster by it, or equivalent within it; most starts of a pair that is decided.
FASTER, MOST_STARTS = 0.05, 20
SHAPES, PAIRS, SIDES = ((3, 40), (5, 20), (2, 40)), 4, 4
SHARED = "a shared machine"

Generator = numpy.random.Generator
#: (starts, iterations of all rows) -> log seconds that the machine adds to each, one after the other
Machine = Callable[[Generator, int, int], numpy.ndarray]


def still(rng: Generator, starts: int, count: int) -> numpy.ndarray:
    return numpy.zeros((starts, count))


def walking(rng: Generator, starts: int, count: int) -> numpy.ndarray:
    """By 3 % from iteration to iteration, and by a quarter from start to start."""
    return rng.normal(0, 0.25, (starts, 1)) + rng.normal(0, 0.03, (starts, count)).cumsum(1)


def switching(enters: float, leaves: float, slower: float) -> Machine:
    """Slower by so much, from one iteration to the next with one chance and back with another."""

    def make(rng: Generator, starts: int, count: int) -> numpy.ndarray:
        added, is_slow = numpy.zeros((starts, count)), rng.random(starts) < enters / (enters + leaves)
        for index, drawn in enumerate(rng.random((count, starts))):
            is_slow = numpy.where(is_slow, drawn >= leaves, drawn < enters)
            added[:, index] = slower * is_slow
        return added

    return make


def neighbour(rng: Generator, starts: int, count: int) -> numpy.ndarray:
    """Somebody who works two fifths of each period of 3 to 30 iterations."""
    periods = numpy.arange(count) / rng.uniform(3, 30, (starts, 1)) + rng.random((starts, 1))
    return 0.3 * (periods % 1 < 0.4)


def shared(rng: Generator, starts: int, count: int) -> numpy.ndarray:
    """As on two cores of a virtual machine: it wanders, and one iteration in five loses its processor for a while."""
    steals = rng.random((starts, count)) < 0.2
    return walking(rng, starts, count) + steals * rng.exponential(0.2, (starts, count))


#: Each with the noise of an iteration, as a standard deviation of logarithms, and of what a start adds to a ratio.
MACHINES: dict[str, tuple[Machine, float, float]] = {
    "a machine that stands still": (still, 0.03, 0.0),
    "a random walk, 3 % an iteration": (walking, 0.06, 0.0),
    "bursts of steal": (switching(0.03, 0.2, 0.6), 0.06, 0.0),
    "two modes": (switching(0.015, 0.02, 0.35), 0.06, 0.0),
    "a periodic neighbour": (neighbour, 0.06, 0.0),
    SHARED: (shared, 0.06, 0.0),
    f"{SHARED}, starts differ by 1 %": (shared, 0.06, 0.01),
    f"{SHARED}, starts differ by 2 %": (shared, 0.06, 0.02),
    "a still machine, starts differ by 0.5 %": (still, 0.03, 0.005),
    "a very still machine, starts differ by 0.5 %": (still, 0.005, 0.005),
}


def started(rng: Generator, name: str, starts: int, turns: int, sides: int = 2, faster: float = 0.0) -> list[InTurns]:
    """Rows that were started together on a machine of this name, the first faster by a share."""
    machine, noise, own = MACHINES[name]
    logs = machine(rng, starts, sides * turns) + rng.normal(0, noise, (starts, sides * turns))
    order = rng.random((starts, (turns + 1) // 2, sides)).argsort(-1)
    order = numpy.stack([order, order[..., ::-1]], 2).reshape(starts, -1, sides)[:, :turns]
    logs = numpy.take_along_axis(logs.reshape(starts, turns, sides), order, -1)
    logs += rng.normal(0, own / math.sqrt(2), (starts, 1, sides))
    logs[..., 0] -= math.log1p(faster)
    when = tuple(Turn("plan", number, 60.0 * number, f"s{number}", tuple(range(turns))) for number in range(starts))
    seconds = numpy.exp(logs).transpose(2, 0, 1).tolist()
    return [InTurns(tuple(RunSeconds(1.0, tuple(one)) for one in runs), when) for runs in seconds]


def figures(count: int) -> Iterator[Figure]:
    """Of twice so many plans of four pairs and pairs that a rule stops, and four times so many groups of four rows."""
    for name, (_, _, own) in MACHINES.items():
        for starts, turns in SHAPES:
            yield from _covered(name, starts, turns, 2 * count, None if own else COVERED)
        if not own:
            yield from _told(name, 4 * count)
    for name in (SHARED, f"{SHARED}, starts differ by 2 %"):
        for faster, bounds in ((0.0, ALARMS), (FASTER, POWER)):
            told = [_is_told_at_its_end(numpy.random.default_rng([SEED, n]), name, faster) for n in range(2 * count)]
            rows = f"one of 2 rows {FASTER:.0%} faster" if faster else "2 equal rows"
            what = f"{name}: {rows}, told where --difference stops"
            yield what, "3 x 40", float(numpy.mean(told)), None if MACHINES[name][2] else bounds


def _covered(name: str, starts: int, turns: int, count: int, bounds: Bounds | None) -> Iterator[Figure]:
    """Intervals of ratios of equal rows: those that leave out 1 tell a difference."""
    rng, held, half_widths = numpy.random.default_rng(SEED), [], []
    for _ in range(count):
        pairs = [started(rng, name, starts, turns) for _ in range(PAIRS)]
        rounds = find_rounds(pairs, None)
        for one, other in pairs:
            ratio = compare_in_turns(one, other, rounds=rounds).ratio
            assert ratio.low is not None and ratio.high is not None, "two starts tell it"
            held.append(ratio.low <= 1 <= ratio.high)
            half_widths.append(math.log(ratio.high / ratio.low) / 2)
    yield f"{name}: ratio covered", f"{starts} x {turns}", float(numpy.mean(held)), bounds
    if name == SHARED:
        yield f"{name}: half-width", f"{starts} x {turns}", float(numpy.median(half_widths)), None


def _told(name: str, count: int) -> Iterator[Figure]:
    rng, alarms, told = numpy.random.default_rng(SEED), [], []
    for _ in range(count):
        rows = started(rng, name, 3, 40, SIDES)
        rounds = find_rounds([rows], None)
        best = rows[fastest(rows, rounds)]
        found = [compare_in_turns(row, best, sides=SIDES, rounds=rounds) for row in rows if row is not best]
        alarms.append(any(one.verdict != "not distinguishable" for one in found))
        one, other = started(rng, name, 3, 40, faster=FASTER)
        told.append(compare_in_turns(one, other, rounds=find_rounds([[one, other]], None)).verdict == "faster")
    yield f"{name}: {SIDES} equal rows, a difference told", "3 x 40", float(numpy.mean(alarms)), ALARMS
    what, bounds = f"{name}: one of 2 rows {FASTER:.0%} faster, told", POWER if name == SHARED else None
    yield what, "3 x 40", float(numpy.mean(told)), bounds


def _is_told_at_its_end(rng: Generator, name: str, faster: float) -> bool:
    """Whether a pair is told apart when --difference gives it no more starts."""
    rows, rule = started(rng, name, MOST_STARTS, 40, faster=faster), rule_of(most=MOST_STARTS, difference=FASTER)
    for starts in range(rule.least, MOST_STARTS + 1):
        sampled = [Sampled(row.runs[:starts], starts, 40, "group", turns=row.turns[:starts]) for row in rows]
        outlooks = judge(sampled, rule)
        if outlooks[0].state != "more":
            break
    found = next(one.comparison for one in outlooks if one.comparison)
    return found.verdict != "not distinguishable"
