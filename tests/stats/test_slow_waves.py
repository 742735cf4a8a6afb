import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.stats.slow_waves import MOST_POINTS, blocks, number_of_waves, slow_waves


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=20))
def test_all_waves_hold_what_varies(values):
    count, mean = len(values), math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    waves = slow_waves(values, 1, count - 1)
    assert math.fsum(wave**2 for wave in waves) == pytest.approx(squares, rel=1e-6, abs=1e-6)


def test_a_straight_trend_is_almost_all_in_the_slowest_wave():
    slowest, *others = slow_waves(list(range(40)), 1, 10)
    assert slowest**2 / (slowest**2 + sum(wave**2 for wave in others)) > 0.98


@pytest.mark.parametrize(("count", "expected"), [(2, 2), (10, 2), (20, 2), (27, 3), (50, 5), (200, 13)])
def test_longer_series_have_more_slow_waves(count, expected):
    assert number_of_waves(count) == expected


def test_blocks_are_means_and_few():
    assert blocks([1.0, 2.0, 3.0]) == [1.0, 2.0, 3.0]
    halves = blocks([float(index) for index in range(2 * MOST_POINTS + 1)])
    assert len(halves) <= MOST_POINTS and halves[0] == 1.0
    assert math.isclose(halves[-1] - halves[-2], 3.0)
