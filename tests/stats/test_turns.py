"""Ratios of rows that took turns by iteration: which turns pair, how sure their mean is, and who it does not move."""

from __future__ import annotations

import math
import random

import pytest

from suite.stats.intervals import RunSeconds
from suite.stats.rounds import InTurns, Turn, compare_in_turns, find_rounds, paired, starts_of
from suite.stats.turns import TRUST, Start, dispersion, error_of, start_of


def noise(count: int, spread: float, seed: int = 1) -> list[float]:
    draws = random.Random(seed)
    return [draws.gauss(0.0, spread) for _ in range(count)]


def machine(turns: int, seed: int) -> list[float]:
    """Log seconds that a machine which wanders by tens of percent adds to whatever runs at a time."""
    level, found = 0.0, []
    for step in noise(turns, 0.08, seed):
        level += step
        found.append(level)
    return found


def rows(ratio: float, starts: int = 3, turns: int = 40, work: tuple[float, float] = (8, 8)) -> tuple[InTurns, InTurns]:
    """Two rows, the first ``ratio`` times as fast per sample, on a machine that wanders far."""
    sides: tuple[list[RunSeconds], list[RunSeconds]] = ([], [])
    when: list[Turn] = []
    for number in range(starts):
        added = machine(turns, number)
        for side, runs in enumerate(sides):
            own = noise(turns, 0.05, 100 * number + side)
            each = work[side] / 8 / (1.0 if side else ratio)
            runs.append(RunSeconds(work[side], tuple(each * math.exp(a + b) for a, b in zip(added, own, strict=True))))
        when.append(Turn("plan", number + 1, 10.0 * number, f"s{number}", tuple(range(2, turns + 2))))
    first, second = (InTurns(tuple(runs), tuple(when)) for runs in sides)
    return first, second


def test_what_slows_both_of_a_turn_is_not_in_their_ratio() -> None:
    fast, slow = rows(1.05)
    within = compare_in_turns(fast, slow, rounds=find_rounds([[fast, slow]], None))
    assert (within.paired_rounds, within.turns) == (3, 120)
    assert within.verdict == "faster" and within.ratio.value == pytest.approx(1.05, rel=0.02)
    low, high = within.ratio.low, within.ratio.high
    assert low is not None and high is not None and high - low < 0.06
    apart = compare_in_turns(fast, slow)
    assert apart.turns is None and apart.verdict == "not distinguishable", "as independent runs they are not told apart"


def test_a_ratio_is_of_rates_so_that_rows_of_more_work_compare_too() -> None:
    """Scaling efficiency is a ratio of rows whose iterations differ in samples."""
    many, few = rows(0.8, work=(16, 8))
    found = paired(many, few, find_rounds([[few, many]], None))
    assert found is not None and math.exp(found.difference.mean) == pytest.approx(0.8, rel=0.02)


def test_turns_pair_by_start_and_by_number_of_the_iteration() -> None:
    turn = Turn("plan", 1, 0.0, "s", tuple(range(2, 9)))
    other = Turn("plan", 1, 0.0, "s", tuple(range(4, 11)))
    a = InTurns((RunSeconds(1, tuple(float(number) for number in turn.iterations)),), (turn,))
    b = InTurns((RunSeconds(1, tuple(2.0 * number for number in other.iterations)),), (other,))
    (start,) = starts_of(a, b)
    assert start.turns == 5 and math.exp(start.mean) == pytest.approx(2.0), "iterations 4 to 8 are in both"
    elsewhere = InTurns(b.runs, (Turn("plan", 1, 0.0, "another", other.iterations),))
    alone = InTurns(b.runs, (Turn("plan", 1, 0.0),))
    assert starts_of(a, elsewhere) == starts_of(a, alone) == []
    assert find_rounds([[a, alone]], None) is None, "a run in turns is no round's partner of one that was alone"


def test_an_iteration_that_lost_its_processor_moves_nothing() -> None:
    calm = noise(40, 0.05)
    hit = [*calm[:-4], 3.0, 3.0, -2.0, 3.0]
    before, after = start_of(calm), start_of(hit)
    assert before is not None and after is not None
    assert after.mean == pytest.approx(before.mean, abs=0.01)


def test_few_turns_tell_nothing() -> None:
    assert start_of([0.0] * 4) is None


def start(mean: float, variance: float = 0.0001) -> Start:
    return Start(mean, variance, neighbours=0.0, squares=1.0, turns=1_000_000)


def test_starts_that_agree_as_their_turns_say_are_taken_at_their_word() -> None:
    found = dispersion([[start(0.01), start(-0.01), start(0.0)]])
    assert found.factor == pytest.approx(1.0, rel=1e-4) and found.degrees == TRUST + 2
    assert error_of([start(0.0)] * 3, found) == pytest.approx(math.sqrt(0.0001 / 3), rel=1e-3)


def test_starts_that_differ_more_than_their_turns_widen_the_intervals_of_all_pairs() -> None:
    apart = [start(0.05), start(-0.05), start(0.0)]
    one, many = dispersion([apart]), dispersion([apart] * 4)
    assert 1.0 < one.factor < many.factor < 25.0, "the more pairs say so, the less the turns are believed"


def test_turns_that_follow_each_other_count_for_less() -> None:
    waves = [math.sin(number / 3) for number in range(40)]
    found = start_of(waves)
    assert found is not None
    assert dispersion([[found]]).factor > 3 > dispersion([[start_of(noise(40, 0.5)) or found]]).factor
