"""Steady, drifting or neither: rightly told, and noise is seldom taken for a drift."""

import math
import random
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.stats.steady_state import TEST_OF_ORDER, _trend_probability, steady_state


def noise(source: random.Random, count: int, spread: float) -> list[float]:
    return [source.lognormvariate(0, spread) for _ in range(count)]


@pytest.mark.parametrize("count", range(5))
def test_too_few_iterations_give_no_verdict_and_say_so(count):
    result = steady_state([1.0] * count)
    assert result.verdict is None
    assert "too few" in result.reasons[0]


def test_equal_iterations_are_steady_and_few_come_with_a_warning():
    result = steady_state([1.0] * 8)
    assert (result.verdict, result.drift, result.spread, result.reasons) == ("steady", 0.0, 0.0, ())
    assert "almost perfect order" in steady_state([1.0] * 5).reasons[-1]
    assert steady_state([1.0 + 0.02 * step for step in range(10)]).spread == pytest.approx(0, abs=1e-9), "of a line"


@pytest.mark.parametrize(
    ("seconds", "verdict", "drift", "says"),
    [
        ([1.0 + 0.02 * step for step in range(10)], "drifting", 0.18 / 1.09, "slower by 16.5%"),
        ([1.2 - 0.02 * step for step in range(10)], "drifting", -0.18 / 1.11, "faster"),
        ([1.0, 1.01, 0.99, 1.0, 1.005, 1.1, 1.11, 1.09, 1.1, 1.105], "drifting", None, "slower"),
        ([1.0 + 0.0005 * step for step in range(10)], "steady", 0.0045 / 1.00225, ""),
        ([1.0, 1.01, 0.99, 3.0, 1.0, 1.0, 0.98, 1.02], "no steady state", None, "counted iteration 3 with 3 s"),
        ([1.0, 2.0] * 6, "no steady state", None, ""),
    ],
    ids=["a rise", "a fall", "a step", "too small to matter", "one far from the rest", "two speeds in turn"],
)
def test_the_verdict_and_what_it_stands_on(seconds, verdict, drift, says):
    result = steady_state(seconds)
    assert result.verdict == verdict
    assert drift is None or result.drift == pytest.approx(drift)
    assert says in "".join(result.reasons[:1])


@pytest.mark.parametrize("count", [8, 30, 60])
def test_pure_noise_is_called_drifting_at_most_one_time_in_twenty(count):
    source = random.Random(5)
    trials = 1000
    called = sum(steady_state(noise(source, count, 0.05)).verdict == "drifting" for _ in range(trials))
    assert called / trials <= 0.065


def test_a_drift_of_a_tenth_is_found_in_noise_of_two_percent():
    source = random.Random(6)
    found = sum(
        steady_state([(1 + 0.1 * step / 19) * value for step, value in enumerate(noise(source, 20, 0.02))]).verdict
        == "drifting"
        for _ in range(200)
    )
    assert found / 200 > 0.95


@settings(max_examples=30)
@given(st.integers(5, 7).flatmap(lambda count: st.permutations(range(count))))
def test_the_trend_probability_is_the_share_of_orders_that_rise_or_fall_as_much(order):
    def score(values):
        return abs(sum((right > left) - (right < left) for left, right in combinations(values, 2)))

    every = list(permutations(range(len(order))))
    assert _trend_probability(order) == pytest.approx(sum(score(one) >= score(order) for one in every) / len(every))
    assert _trend_probability([1, 2, 2, 1]) == 1.0, "as much falls as rises, among ties too"


@given(st.lists(st.floats(1e-3, 1e3), min_size=5, max_size=40), st.floats(1e-3, 1e3))
def test_the_verdict_does_not_depend_on_the_unit(seconds, factor):
    there, back = steady_state(seconds), steady_state([second * factor for second in seconds])
    assert back.spread == pytest.approx(there.spread, rel=1e-6, abs=1e-9)
    assert back.drift == pytest.approx(there.drift, rel=1e-6, abs=1e-9)


def lasting(source: random.Random, count: int, correlation: float) -> list[float]:
    """Iterations of 1 s whose 3 % of noise lasts for some of them."""
    value, found = source.gauss(0, 0.03), []
    for _ in range(count):
        found.append(math.exp(value))
        value = correlation * value + source.gauss(0, 0.03) * math.sqrt(1 - correlation**2)
    return found


@pytest.mark.parametrize(("count", "correlation"), [(20, 0.3), (20, 0.6), (50, 0.6)])
def test_noise_that_lasts_is_called_drifting_at_most_seven_times_in_a_hundred(count, correlation):
    source = random.Random(9)
    series = [lasting(source, count, correlation) for _ in range(600)]
    assert sum(steady_state(one).verdict == "drifting" for one in series) / 600 <= 0.08
    assert sum(steady_state(one, TEST_OF_ORDER).verdict == "drifting" for one in series) / 600 > 0.1


def test_twenty_thousand_iterations_are_judged_in_blocks():
    source = random.Random(8)
    assert steady_state(noise(source, 20_000, 0.05)).verdict == "steady"
    rising = [(1 + 0.05 * step / 20_000) * value for step, value in enumerate(noise(source, 20_000, 0.05))]
    result = steady_state(rising)
    assert result.verdict == "drifting"
    assert result.drift == pytest.approx(0.05, rel=0.1)
