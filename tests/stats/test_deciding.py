"""How many runs tell two rates apart."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.stats.compare import welch
from suite.stats.deciding import MOST_RUNS, power, runs_to_decide
from suite.stats.multiple import one_sided
from tests.stats.runs import noisy_runs


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
    for spread, level in ((0.0, 0.05), (0.03, 0.0), (0.03, 0.5)):
        with pytest.raises(ValueError, match="spread"):
            runs_to_decide(0.1, spread, level)
