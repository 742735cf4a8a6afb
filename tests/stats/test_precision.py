"""The rule that adds runs keeps the promise of its intervals, and tells how many would decide."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.stopping import NOISE, rule_of, verdicts, widths
from suite.spec.manifest import Stopping
from suite.stats.compare import welch
from suite.stats.deciding import MOST_RUNS, power, runs_to_decide
from suite.stats.intervals import RunSeconds
from suite.stats.multiple import one_sided
from suite.stats.precision import CONFIRMING_ALONE, CONFIRMING_RUNS, Outlook, Sampled, judge
from suite.stats.rounds import InTurns
from suite.stats.split import Cost, RowSpread, best_iterations
from tests.stats.runs import noisy_runs


def row(count: int, noise: float, seed: int = 1, **fields: object) -> Sampled:
    rng = random.Random(seed)
    runs = tuple(RunSeconds(1.0, (math.exp(rng.gauss(0, noise)),)) for _ in range(count))
    return Sampled(runs, count, 1, **fields)


def test_intervals_of_rows_that_stopped_by_themselves_hold_as_often_as_they_say() -> None:
    alone, _ = widths(1500, 1, [NOISE], 0.03)
    together, _ = widths(60, 16, [NOISE, 2 * NOISE] * 8, 0.03)
    assert 0.925 <= alone <= 0.97 and 0.925 <= together <= 0.97, "of 1500 and of 960 rows"


def test_equal_rows_are_seldom_told_apart_and_end_as_equivalent() -> None:
    told, decided, equal, _ = verdicts(50, 2, 0.05, 1.0)
    assert told <= 0.05 and decided == 1 and equal >= 0.95


def test_rows_that_differ_by_what_was_asked_are_told_apart_and_far_ones_at_once() -> None:
    told, decided, _, some = verdicts(20, 2, 0.05, 1.05)
    far, _, _, few = verdicts(5, 2, 0.05, 2.0)
    assert told >= 0.9 and decided == 1 and far == 1
    assert few == 3 < some


def test_a_width_is_confirmed_before_a_row_is_done() -> None:
    asked = rule_of(precision=0.5)
    states = [judge([row(count, 0.001)], asked)[0] for count in range(3, 3 + CONFIRMING_ALONE + 1)]
    assert [one.state for one in states] == ["more"] * CONFIRMING_ALONE + ["reached"]
    assert [one.more_runs for one in states] == list(range(CONFIRMING_ALONE, -1, -1))
    plan = [row(3 + CONFIRMING_RUNS, NOISE, seed=seed) for seed in range(8)]
    assert {one.state for one in judge(plan, asked)} == {"reached"}, "rows that share their variance need fewer"


def test_the_runs_that_will_do_are_foreseen() -> None:
    asked = rule_of(precision=0.02, most=200)
    outlook = judge([row(20, 0.1)], asked)[0]
    assert outlook.state == "more" and outlook.half_width is not None and outlook.half_width > 0.02
    needed = (1.96 * 0.1 / math.log(1.02)) ** 2
    assert 0.4 * needed < 20 + outlook.more_runs < 2 * needed, "by the spread of twenty runs"


def test_a_row_out_of_reach_is_told_at_the_first_look_and_one_that_may_get_there_goes_on() -> None:
    far = judge([row(3, 0.3)], rule_of(precision=0.01, most=30))[0]
    assert far.state == "out of reach" and far.more_runs > 1000
    assert judge([row(3, 0.03)], rule_of(precision=0.03, most=30))[0].state == "more"
    last = judge([row(30, 0.1)], rule_of(precision=0.03, most=30))[0]
    assert last.state in ("at the most", "out of reach") and last.more_runs > 0


def test_a_difference_at_95_per_cent_that_is_not_firm_gets_more_runs() -> None:
    asked = rule_of(difference=0.2)
    fast, slow = (
        tuple(RunSeconds(1.0, (math.exp(shift + step),)) for step in (0.01, -0.01) * 4) for shift in (0.0, 0.0135)
    )
    outlooks = judge([Sampled(fast, 8, 1, group=0), Sampled(slow, 8, 1, group=0)], asked)
    comparison = next(one.comparison for one in outlooks if one.comparison)
    assert comparison.verdict != "not distinguishable" and comparison.equivalent
    assert {one.state for one in outlooks} == {"more"}


def test_a_row_without_a_partner_that_has_runs_is_not_waited_for() -> None:
    asked = rule_of(difference=0.05)
    stopped = row(1, 0.01, group=0, closed=True)
    assert judge([row(3, 0.01, group=0), stopped], asked)[0].state == "out of reach"
    assert judge([row(3, 0.01)], asked)[0].state == "reached", "it is compared with nothing"


def alone(*runs: RunSeconds) -> InTurns:
    return InTurns(runs, (None,) * len(runs))


def varied(within: float, between: float) -> InTurns:
    """200 runs of ten iterations."""
    rng = random.Random(3)
    levels = [rng.gauss(0, between) for _ in range(200)]
    return alone(
        *(RunSeconds(1.0, tuple(math.exp(level + rng.gauss(0, within)) for _ in range(10))) for level in levels)
    )


def test_the_best_number_of_iterations_is_the_cheapest_for_a_given_width() -> None:
    cost, within, between = Cost(start_seconds=10, iteration_seconds=0.5), 0.1, 0.05
    cheapest = min(range(1, 200), key=lambda count: cost.run_seconds(count) * (between**2 + within**2 / count))
    best = best_iterations([(varied(within, between), cost)], 1, 1000)
    assert best == pytest.approx(cheapest, rel=0.3)


def test_runs_of_more_iterations_vary_by_less() -> None:
    """Of the first 0.05, 0.01 is between runs of two iterations; four more runs of eight have 0.01 + 0.04 / 4."""
    known = RowSpread(count=4, runs=0.05, degrees=3, within=0.08, iterations=2)
    assert known.between == pytest.approx(0.01)
    assert known.after(4, 8) == pytest.approx((4 * 0.05 + 4 * 0.02) / 8)


def test_the_number_of_iterations_stays_within_its_bounds() -> None:
    cost = Cost(start_seconds=100, iteration_seconds=0.01)
    assert best_iterations([(varied(0.2, 0.0), cost)], 5, 32) == 32
    assert best_iterations([(varied(0.001, 0.3), Cost(0.1, 5.0))], 5, 32) == 5
    assert best_iterations([(alone(*[RunSeconds(1.0, (1.0, 1.5))] * 3), cost)], 5, 32) == 32, "runs are alike"
    assert best_iterations([(alone(*[RunSeconds(1.0, (1.0,))] * 3), cost)], 5, 32) is None, (
        "one iteration tells nothing"
    )


SECONDS = st.floats(0.5, 2.0)
ROWS = st.lists(st.lists(SECONDS, min_size=1, max_size=12), min_size=1, max_size=4)
PRECISIONS = st.floats(0.001, 1.0)


def looked_at(rows: list[list[float]], asked: Stopping, factor: float = 1.0) -> tuple[Outlook, ...]:
    runs = [tuple(RunSeconds(1.0, (factor * each,)) for each in row) for row in rows]
    return judge([Sampled(each, len(each), 1) for each in runs], asked)


@settings(max_examples=80)
@given(ROWS, PRECISIONS, st.integers(3, 6))
def test_a_row_stops_as_precise_as_was_asked_or_because_its_runs_are_spent(rows, precision, least):
    """Never above the asked half-width, never before the least runs, never on after the most."""
    asked = rule_of(least, 12, precision=precision)
    for row, found in zip(rows, looked_at(rows, asked), strict=True):
        if found.state == "reached":
            assert len(row) >= least and found.more_runs == 0
            assert found.half_width is not None and found.half_width <= precision * (1 + 1e-9)
        elif found.state == "more":
            assert len(row) < asked.most and found.more_runs is not None and found.more_runs > 0
        else:
            assert found.half_width is not None and len(row) >= least
            assert found.state == "out of reach" or len(row) == asked.most


@settings(max_examples=60)
@given(ROWS, PRECISIONS, st.floats(1.0, 10.0))
def test_who_asks_for_less_waits_for_no_more_runs(rows, precision, wider):
    narrow, wide = (
        looked_at(rows, rule_of(most=12, precision=min(1.0, each))) for each in (precision, wider * precision)
    )
    order = ["reached", "more", "out of reach", "at the most"]
    for one, other in zip(narrow, wide, strict=True):
        assert one.half_width == other.half_width
        if one.state == "reached":
            assert other.state == "reached"
        if other.state == "out of reach":
            assert order.index(one.state) >= order.index("out of reach")


@settings(max_examples=60)
@given(ROWS, PRECISIONS, st.floats(1e-6, 1e6))
def test_the_unit_of_time_and_the_order_of_rows_decide_nothing(rows, precision, factor):
    found = looked_at(rows, rule_of(most=12, precision=precision))
    for one, other in zip(found, looked_at(rows, rule_of(most=12, precision=precision), factor), strict=True):
        assert (one.half_width is None) == (other.half_width is None)
        if one.half_width is not None and other.half_width is not None:
            assert math.isclose(one.half_width, other.half_width, rel_tol=1e-6)
    backwards = looked_at(rows[::-1], rule_of(most=12, precision=precision))[::-1]
    assert [one.state for one in backwards] == [one.state for one in found]


@settings(max_examples=40)
@given(ROWS, PRECISIONS, st.integers(4, 30))
def test_a_larger_budget_ends_no_row_earlier(rows, precision, most):
    tight, loose = (looked_at(rows, rule_of(most=each, precision=precision)) for each in (most, most + 20))
    for one, other in zip(tight, loose, strict=True):
        assert (one.state == "reached") == (other.state == "reached")
        if one.state == "more":
            assert other.state == "more"


@pytest.mark.parametrize(("runs", "distance", "spread"), [(4, 0.05, 0.03), (10, 0.054, 0.05), (3, 0.2, 0.04)])
def test_the_power_is_what_a_simulation_finds(runs: int, distance: float, spread: float) -> None:
    source = random.Random(5)
    trials, found = 2000, 0
    for _ in range(trials):
        slow, fast = (noisy_runs(source, runs, rate, spread) for rate in (1.0, math.exp(distance)))
        test = welch(fast, slow)
        found += one_sided(test.mean, test.error, 2 * runs - 2) <= 0.05
    assert found / trials == pytest.approx(power(runs, distance, spread, 0.05), abs=0.03)


@given(st.floats(0.02, 0.1), st.floats(0.01, 0.06))
def test_the_runs_that_are_named_are_the_fewest_with_that_chance(distance: float, spread: float) -> None:
    runs = runs_to_decide(distance, spread, 0.05)
    assert power(runs, distance, spread, 0.05) >= 0.8
    assert runs == 2 or power(runs - 1, distance, spread, 0.05) < 0.8


def test_more_noise_a_stricter_level_or_a_smaller_distance_takes_more_runs() -> None:
    runs = runs_to_decide(0.05, 0.03, 0.05)
    assert runs_to_decide(0.05, 0.06, 0.05) > runs
    assert runs_to_decide(0.05, 0.03, 0.005) > runs
    assert runs_to_decide(0.02, 0.03, 0.05) > runs
    assert runs_to_decide(0.05, 0.03, 0.05, more_degrees=60) <= runs


def test_what_cannot_be_decided_with_any_number_of_runs_is_said_to_be_so() -> None:
    for distance, spread in ((0.0, 0.03), (-0.1, 0.03), (1e-5, 0.1)):
        assert runs_to_decide(distance, spread, 0.05) is None
    assert runs_to_decide(10.0, 0.001, 0.05) == 2
    assert power(MOST_RUNS, 5.0, 0.001, 0.05) == 1.0
