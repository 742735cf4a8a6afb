"""Ratios of rows that took turns by iteration: which turns pair, how sure their mean is, and who it does not move."""

import math
import random

import pytest

from benchmarks.stopping import rule_of
from suite.stats.intervals import RunSeconds
from suite.stats.precision import Sampled, judge
from suite.stats.rounds import InTurns, Turn, compare_in_turns, find_rounds, paired, starts_of
from suite.stats.split import Cost, best_iterations
from suite.stats.turns import OWN_SPREAD, TRUST, Dispersion, TurnPair, dispersion, pair_of


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


def rows(
    ratio: float, starts: int = 3, turns: int = 40, work: tuple[float, float] = (8, 8), plan: str = "plan"
) -> tuple[InTurns, InTurns]:
    """Two rows, the first ``ratio`` times as fast per sample, on a machine that wanders far."""
    sides: tuple[list[RunSeconds], list[RunSeconds]] = ([], [])
    when: list[Turn] = []
    for number in range(starts):
        added = machine(turns, number)
        for side, runs in enumerate(sides):
            own = noise(turns, 0.05, 100 * number + side)
            each = work[side] / 8 / (1.0 if side else ratio)
            runs.append(RunSeconds(work[side], tuple(each * math.exp(a + b) for a, b in zip(added, own, strict=True))))
        when.append(Turn(plan, number + 1, 10.0 * number, f"{plan} {number}", tuple(range(2, turns + 2))))
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
    first = tuple(Turn("plan", 1, 0.0, start, tuple(range(2, 9))) for start in "st")
    second = tuple(Turn("plan", 1, 0.0, start, tuple(range(4, 11))) for start in "ts")
    a = InTurns((RunSeconds(1, tuple(float(number) for number in first[0].iterations)),) * 2, first)
    b = InTurns((RunSeconds(1, tuple(2.0 * number for number in second[0].iterations)),) * 2, second)
    pair = starts_of(a, b)
    assert pair and (pair.starts, pair.turns) == (2, 10), "iterations 4 to 8 are in both"
    assert math.exp(pair.mean) == pytest.approx(2.0)
    elsewhere = InTurns(b.runs, (Turn("plan", 1, 0.0, "another", second[0].iterations), second[0]))
    alone = InTurns(b.runs, (Turn("plan", 1, 0.0),) * 2)
    assert starts_of(a, elsewhere) is None, "one start tells nothing of how far starts vary"
    assert starts_of(a, alone) is None
    assert find_rounds([[a, alone]], None) is None, "a run in turns is no round's partner of one that was alone"


def test_rows_of_two_blocks_are_compared_by_the_row_that_took_turns_with_both() -> None:
    one, common = rows(1.1)
    other, again = rows(0.9, plan="second block")
    both = InTurns(common.runs + again.runs, common.turns + again.turns)
    found = paired(one, other, find_rounds([[both, one, other]], None))
    assert found and math.exp(found.difference.mean) == pytest.approx(1.1 / 0.9, rel=0.03) and found.rounds == 3
    direct = paired(one, both, find_rounds([[both, one, other]], None))
    assert direct and found.difference.error > direct.difference.error


def test_an_iteration_that_lost_its_processor_moves_nothing() -> None:
    calm = noise(40, 0.05)
    before, after = pair_of([calm, calm]), pair_of([[*calm[:-4], 3.0, 3.0, -2.0, 3.0], calm])
    assert before and after and after.mean == pytest.approx(before.mean, abs=0.01)


def test_few_turns_of_a_start_tell_nothing_and_a_long_start_counts_for_more() -> None:
    assert pair_of([[0.0] * 4] * 3) is None
    pair = pair_of([noise(10, 0.01), [value + 0.1 for value in noise(90, 0.01)]])
    assert pair and pair.mean == pytest.approx(0.09, abs=0.005)


def pair(squares: float, explained: float = 0.0004, starts: int = 3) -> TurnPair:
    return TurnPair(0.0, explained, squares, starts, 40 * starts)


def error(one: TurnPair, *others: TurnPair) -> float:
    return one.difference(dispersion([one, *others])).error


def test_starts_that_agree_as_their_turns_say_are_taken_at_their_word() -> None:
    found, trust = pair(2.0).difference(Dispersion(2.0, 2)), TRUST * 0.0004 / (0.0004 + OWN_SPREAD**2)
    assert found.error == pytest.approx(math.sqrt(0.0004 / 3))
    assert found.degrees == pytest.approx((trust + 2) ** 2 / 2) and found.degrees > 20


def test_starts_that_differ_by_themselves_widen_the_interval_and_more_so_where_those_of_other_pairs_do() -> None:
    assert error(pair(2.0)) < error(pair(8.0)) < error(pair(8.0), *[pair(8.0)] * 4)
    assert error(pair(2.0), *[pair(0.0)] * 4) == error(pair(2.0)), "nobody is surer for what others agree in"


def test_turns_that_hardly_vary_say_little_of_what_starts_have_of_their_own() -> None:
    far, still = (pair(2.0, explained).difference(Dispersion(2.0, 2)) for explained in (0.01, 1e-7))
    assert far.degrees > 30 and still.degrees == pytest.approx(2.0, abs=0.1)


def test_turns_that_follow_each_other_count_for_less() -> None:
    waves, drawn = ([math.sin(number / 3) for number in range(40)], noise(40, 0.7))
    slow, plain = pair_of([waves] * 2), pair_of([drawn] * 2)
    assert slow and plain and slow.explained > 3 * plain.explained


def judged(ratio: float, starts: int, **asked: float) -> list[tuple[str, int | None]]:
    sampled = [Sampled(row.runs, starts, 40, "group", turns=row.turns) for row in rows(ratio, starts)]
    return [(one.state, one.more_runs) for one in judge(sampled, rule_of(most=20, **asked))]


def test_a_rule_asks_for_ratios_of_rows_in_turns_and_for_starts_of_all_of_them() -> None:
    assert judged(1.0, 2, precision=0.03) == [("more", 1)] * 2
    assert judged(1.0, 3, precision=0.03) == [("reached", 0)] * 2, "rates are known to far less"
    (one, more), other = judged(1.0, 3, precision=0.01)
    assert (one, more) == other and one == "more" and more and more < 10
    (one, more), _ = judged(1.0, 3, precision=0.005)
    assert one == "more" and more and more > 17, "with luck the twenty that it may have are enough"
    assert judged(1.0, 3, precision=0.004)[0][0] == "out of reach"
    assert judged(1.0, 3, difference=0.05) == judged(1.2, 3, difference=0.05) == [("reached", 0)] * 2
    assert judged(1.2, 3, difference=0.01) == [("reached", 0)] * 2, "told apart for sure, in an interval of any width"


def test_iterations_of_a_start_follow_from_what_it_costs_and_how_far_starts_differ() -> None:
    """Two rows share a start of 20 s, beside 0.5 s for a turn of both."""
    pairs = rows(1.0, turns=40)
    runs = [(row, Cost(start_seconds=10, iteration_seconds=each)) for row, each in zip(pairs, (0.3, 0.2), strict=True)]
    found = starts_of(*pairs)
    assert found
    best = math.sqrt(20 * 40 * found.explained / (0.5 * found.own_variance(dispersion([found]))))
    assert best_iterations(runs, 5, 1000) == pytest.approx(best, abs=1)
