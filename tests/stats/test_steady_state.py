from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.stats.steady_state import TEST_OF_ORDER, _exact_probability, _trend_probability, steady_state


def noise(source: random.Random, count: int, spread: float) -> list[float]:
    return [source.lognormvariate(0, spread) for _ in range(count)]


def test_equal_iterations_are_steady():
    result = steady_state([1.0] * 8)
    assert (result.verdict, result.drift, result.spread) == ("steady", 0.0, 0.0)


@pytest.mark.parametrize("count", range(5))
def test_too_few_iterations_give_no_verdict_and_say_so(count):
    result = steady_state([1.0] * count)
    assert result.verdict is None
    assert "too few" in result.reasons[0]


def test_few_iterations_come_with_a_warning():
    assert "almost perfect order" in steady_state([1.0] * 5).reasons[-1]
    assert steady_state([1.0] * 8).reasons == ()


def test_a_steady_rise_is_a_drift_and_tells_its_size():
    result = steady_state([1.0 + 0.02 * step for step in range(10)])
    assert result.verdict == "drifting"
    assert result.drift == pytest.approx(0.18 / 1.09)
    assert "slower by 16.5%" in result.reasons[0]


def test_a_fall_is_a_drift_too():
    assert "faster" in steady_state([1.2 - 0.02 * step for step in range(10)]).reasons[0]


def test_a_certain_drift_too_small_to_matter_is_steady():
    result = steady_state([1.0 + 0.0005 * step for step in range(10)])
    assert result.verdict == "steady"
    assert 0 < result.drift < 0.01


def test_one_iteration_far_from_the_rest_is_no_steady_state_and_is_named():
    result = steady_state([1.0, 1.01, 0.99, 3.0, 1.0, 1.0, 0.98, 1.02])
    assert result.verdict == "no steady state"
    assert "counted iteration 3 with 3 s" in result.reasons[0]


def test_two_speeds_in_turn_are_no_steady_state():
    assert steady_state([1.0, 2.0] * 6).verdict == "no steady state"


def test_a_step_in_the_middle_is_a_drift():
    assert steady_state([1.0, 1.01, 0.99, 1.0, 1.005, 1.1, 1.11, 1.09, 1.1, 1.105]).verdict == "drifting"


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


@pytest.mark.parametrize("order", [[1, 3, 2, 5, 4, 6, 8, 7], [3, 1, 2, 4, 5], [2, 7, 1, 8, 3, 6, 4, 5, 9]])
def test_the_trend_probability_is_kendalls(order):
    stats = pytest.importorskip("scipy.stats")
    expected = stats.kendalltau(range(len(order)), order, method="exact").pvalue
    assert _trend_probability(order) == pytest.approx(expected)


def test_the_exact_probabilities_of_all_scores_add_up():
    assert _exact_probability(5, 10) == pytest.approx(2 / 120)
    assert _exact_probability(6, 1) == 1.0


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
