"""Intervals of rates: what they are worth, what widens them, and that they hold as often as they say."""

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.stats.intervals import (
    Interval,
    RunSeconds,
    by_lag_one,
    by_slow_waves,
    mean_interval,
    pooled_mean,
    pooled_rate,
    rate_interval,
)
from suite.stats.moderated import LEAST_SPREAD, Prior
from suite.stats.quantiles import student_quantile
from suite.stats.slow_waves import MOST_POINTS, blocks, number_of_waves, slow_waves

times = st.lists(st.floats(min_value=1e-3, max_value=1e3), min_size=1, max_size=30).map(tuple)
works = st.floats(min_value=1, max_value=1e9)


def two_level_runs(source: random.Random, runs: int, between: float, within: float, iterations: int = 8):
    """Runs of 1 s iterations on average, whose true log rate is log(10)."""
    factors = [math.exp(source.gauss(0, between)) for _ in range(runs)]
    return [
        RunSeconds(10.0, tuple(factor * math.exp(source.gauss(-(within**2) / 2, within)) for _ in range(iterations)))
        for factor in factors
    ]


def coverage(make: Callable[[random.Random], Interval], truth: float, trials: int = 1500, seed: int = 7) -> float:
    source = random.Random(seed)
    intervals = [make(source) for _ in range(trials)]
    return sum(interval.low <= truth <= interval.high for interval in intervals) / trials


@given(works, times)
def test_a_rate_is_total_work_over_total_time_and_lies_in_its_interval(work, seconds):
    interval = rate_interval(RunSeconds(work, seconds))
    assert interval.value == pytest.approx(work * len(seconds) / sum(seconds), rel=1e-12)
    if len(seconds) == 1:
        assert interval.low is None and interval.high is None
    else:
        assert 0 < interval.low <= interval.value <= interval.high


@given(times)
def test_mean_seconds_have_the_interval_of_the_rate_turned_over(seconds):
    mean, rate = mean_interval(seconds), rate_interval(RunSeconds(1.0, seconds))
    assert mean.value == pytest.approx(1 / rate.value, rel=1e-12)
    if rate.low is not None:
        assert (mean.low, mean.high) == pytest.approx((1 / rate.high, 1 / rate.low), rel=1e-9)


@given(st.lists(times, min_size=2, max_size=6))
def test_mean_seconds_over_repeats_have_the_interval_of_the_pooled_rate_turned_over(runs):
    means, rate = [sum(run) / len(run) for run in runs], pooled_rate([RunSeconds(1.0, run) for run in runs])
    mean = pooled_mean(means, [len(run) for run in runs])
    assert mean.value == pytest.approx(1 / rate.value, rel=1e-9)
    assert (mean.low, mean.high) == pytest.approx((1 / rate.high, 1 / rate.low), rel=1e-6)


def test_nothing_bounds_what_took_no_time():
    assert mean_interval([0.0, 0.0]) == Interval(0.0, None, None)
    assert mean_interval([0.0, 1.0, 1.0]).low is not None, "an iteration may take none of it"
    assert pooled_mean([0.0, 1.0], [1, 3]) == Interval(0.75, None, None)
    assert pooled_mean([2.0], [0.25]).value == 2.0
    with pytest.raises(ValueError, match="no value"):
        mean_interval([])


@given(st.lists(st.builds(RunSeconds, works, times), min_size=2, max_size=6))
def test_the_pooled_interval_holds_its_value(runs):
    interval = pooled_rate(runs)
    assert 0 < interval.low <= interval.value <= interval.high


def test_the_within_run_interval_of_old_bundles_is_students_t_by_hand():
    interval = rate_interval(RunSeconds(2.0, (1.0, 3.0, 1.0, 3.0)), by_lag_one)
    half = 3.182446305284263 * math.sqrt(4 / 3 / 4) / 2  # t(3), s^2 = 4/3, mean 2; negative autocorrelation is ignored
    assert interval.value == 1.0
    assert interval.high == pytest.approx(math.exp(half), rel=1e-9)
    assert interval.low == pytest.approx(math.exp(-half), rel=1e-9)


def test_three_iterations_have_students_t_whatever_their_order():
    interval = rate_interval(RunSeconds(1.0, (1.0, 1.2, 0.8)))
    assert math.log(interval.high) == pytest.approx(student_quantile(2) * 0.2 / math.sqrt(3))


def test_equal_iterations_and_equal_runs_do_not_prove_that_there_is_no_noise():
    interval = rate_interval(RunSeconds(1.0, (0.5,) * 4))
    assert math.log(interval.high / 2) == pytest.approx(student_quantile(2) * LEAST_SPREAD / 2)
    interval = pooled_rate([RunSeconds(4.0, (0.5, 0.5, 0.5))] * 2)
    assert math.log(interval.high / 8) == pytest.approx(student_quantile(1) * LEAST_SPREAD / math.sqrt(2))


@pytest.mark.parametrize("half_width", [by_lag_one, by_slow_waves])
def test_positive_autocorrelation_widens_the_interval(half_width):
    rising, mixed = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5), (1.0, 1.5, 1.1, 1.4, 1.2, 1.3)
    wide = rate_interval(RunSeconds(1.0, rising), half_width)
    narrow = rate_interval(RunSeconds(1.0, mixed), half_width)
    assert wide.value == pytest.approx(narrow.value)
    assert wide.high - wide.low > 1.2 * (narrow.high - narrow.low)


@pytest.mark.parametrize(
    ("runs", "between", "within"), [(3, 0.05, 0.03), (3, 0.01, 0.10), (5, 0.05, 0.03), (5, 0.0, 0.05)]
)
def test_the_two_level_interval_covers_the_truth(runs, between, within):
    covered = coverage(lambda source: pooled_rate(two_level_runs(source, runs, between, within)), 10.0)
    assert 0.93 <= covered <= 0.97


def test_the_within_run_interval_covers_the_rate_of_its_own_run_and_not_the_spread_between_runs():
    own, any_run = (
        coverage(lambda source, between=between: rate_interval(two_level_runs(source, 1, between, 0.05)[0]), 10.0)
        for between in (0.0, 0.08)
    )
    assert 0.93 <= own <= 0.97 and any_run < 0.6


def test_one_run_pools_to_its_own_interval():
    run = RunSeconds(4.0, (1.0, 1.1, 0.9))
    assert pooled_rate([run]) == rate_interval(run)


def test_a_prior_narrows_the_interval_of_a_few_runs():
    runs = [RunSeconds(1.0, (seconds,)) for seconds in (1.0, 1.03, 0.98)]
    alone, helped = pooled_rate(runs), pooled_rate(runs, Prior(variance=4e-4, degrees=12.0, most=40.0))
    assert helped.value == alone.value
    assert alone.low < helped.low < helped.high < alone.high


@pytest.mark.parametrize("seconds", [(), (0.0,), (1.0, -1.0), (math.inf,), (math.nan,)])
def test_times_that_are_none_are_refused(seconds):
    with pytest.raises(ValueError, match="positive"):
        RunSeconds(1.0, seconds)


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
