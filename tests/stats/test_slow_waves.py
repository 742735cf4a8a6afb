from __future__ import annotations

import math
import random

import pytest

from suite.stats.slow_waves import MOST_POINTS, blocks, number_of_waves, slow_waves


def test_all_waves_hold_what_varies():
    source = random.Random(1)
    values = [source.gauss(5, 1) for _ in range(12)]
    mean = sum(values) / 12
    squares = sum((value - mean) ** 2 for value in values)
    assert sum(wave**2 for wave in slow_waves(values, 1, 11)) == pytest.approx(squares)


def test_a_straight_trend_is_almost_all_in_the_slowest_wave():
    slowest, *others = slow_waves(list(range(40)), 1, 10)
    assert slowest**2 / (slowest**2 + sum(wave**2 for wave in others)) > 0.98


def test_equal_values_have_no_waves():
    assert slow_waves([3.0] * 9, 1, 8) == pytest.approx([0.0] * 8, abs=1e-12)


@pytest.mark.parametrize(("count", "expected"), [(2, 2), (10, 2), (20, 2), (27, 3), (50, 5), (200, 13)])
def test_longer_series_have_more_slow_waves(count, expected):
    assert number_of_waves(count) == expected


def test_blocks_are_means_and_few():
    assert blocks([1.0, 2.0, 3.0]) == [1.0, 2.0, 3.0]
    halves = blocks([float(index) for index in range(2 * MOST_POINTS + 1)])
    assert len(halves) <= MOST_POINTS and halves[0] == 1.0
    assert math.isclose(halves[-1] - halves[-2], 3.0)
