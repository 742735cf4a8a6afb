from __future__ import annotations

import math
import random
import subprocess
import sys
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

times = st.lists(st.floats(min_value=1e-3, max_value=1e3), min_size=1, max_size=30).map(tuple)
works = st.floats(min_value=1, max_value=1e9)


def two_level_runs(source: random.Random, runs: int, between: float, within: float, iterations: int = 8):
    """Runs of 1 s iterations on average, whose true log rate is log(10)."""
    found = []
    for _ in range(runs):
        run_factor = math.exp(source.gauss(0, between))
        seconds = tuple(run_factor * math.exp(source.gauss(-(within**2) / 2, within)) for _ in range(iterations))
        found.append(RunSeconds(10.0, seconds))
    return found


def coverage(make: Callable[[random.Random], Interval], truth: float, trials: int = 1500, seed: int = 7) -> float:
    source = random.Random(seed)
    hits = 0
    for _ in range(trials):
        interval = make(source)
        hits += interval.low <= truth <= interval.high
    return hits / trials


@given(works, times)
def test_a_rate_is_total_work_over_total_time(work, seconds):
    interval = rate_interval(RunSeconds(work, seconds))
    assert interval.value == pytest.approx(work * len(seconds) / sum(seconds), rel=1e-12)


def test_a_rate_is_not_the_mean_of_rates():
    assert rate_interval(RunSeconds(1.0, (1.0, 3.0))).value == 0.5


@given(works, times)
def test_the_interval_holds_its_value_and_is_positive(work, seconds):
    interval = rate_interval(RunSeconds(work, seconds))
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
    for means, weights in (([], []), ([1.0], [0]), ([1.0], [])):
        with pytest.raises(ValueError, match="each with its weight"):
            pooled_mean(means, weights)
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


def test_equal_iterations_do_not_prove_that_there_is_no_noise():
    interval = rate_interval(RunSeconds(1.0, (0.5,) * 4))
    assert math.log(interval.high / 2) == pytest.approx(student_quantile(2) * LEAST_SPREAD / 2)


@pytest.mark.parametrize("half_width", [by_lag_one, by_slow_waves])
def test_positive_autocorrelation_widens_the_interval(half_width):
    rising, mixed = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5), (1.0, 1.5, 1.1, 1.4, 1.2, 1.3)
    wide = rate_interval(RunSeconds(1.0, rising), half_width)
    narrow = rate_interval(RunSeconds(1.0, mixed), half_width)
    assert wide.value == pytest.approx(narrow.value)
    assert wide.high - wide.low > 1.2 * (narrow.high - narrow.low)


@pytest.mark.parametrize("runs", [3, 5])
@pytest.mark.parametrize(("between", "within"), [(0.05, 0.03), (0.01, 0.10), (0.0, 0.05)])
def test_the_two_level_interval_covers_the_truth(runs, between, within):
    covered = coverage(lambda source: pooled_rate(two_level_runs(source, runs, between, within)), 10.0)
    assert 0.93 <= covered <= 0.97


def test_the_within_run_interval_covers_the_rate_of_its_own_run():
    covered = coverage(lambda source: rate_interval(two_level_runs(source, 1, 0.0, 0.05)[0]), 10.0)
    assert 0.93 <= covered <= 0.97


def test_the_within_run_interval_does_not_cover_the_spread_between_runs():
    covered = coverage(lambda source: rate_interval(two_level_runs(source, 1, 0.05, 0.03)[0]), 10.0)
    assert covered < 0.6


def test_a_bootstrap_of_three_runs_under_covers():
    pytest.importorskip("numpy")
    seeds = iter(range(10_000))

    def make(source: random.Random) -> Interval:
        return hierarchical_bootstrap(two_level_runs(source, 3, 0.05, 0.03), next(seeds))

    assert coverage(make, 10.0, trials=300) < 0.88


def test_a_bootstrap_of_many_runs_agrees_with_the_two_level_interval():
    runs = two_level_runs(random.Random(3), 30, 0.05, 0.05)
    by_t, by_bootstrap = pooled_rate(runs), hierarchical_bootstrap(runs, seed=1, resamples=2000)
    assert by_bootstrap.high - by_bootstrap.low == pytest.approx(by_t.high - by_t.low, rel=0.2)
    assert by_bootstrap.low == pytest.approx(by_t.low, rel=0.01)


def hierarchical_bootstrap(runs: list[RunSeconds], seed: int, resamples: int = 400) -> Interval:
    """Percentile interval over resampled runs and, in each, resampled iterations: the textbook alternative."""
    import numpy

    generator = numpy.random.default_rng(seed)
    seconds = numpy.array([run.seconds for run in runs])
    count, iterations = seconds.shape
    drawn = seconds[generator.integers(count, size=(resamples, count))]
    index = generator.integers(iterations, size=(resamples, count, iterations))
    means = numpy.take_along_axis(drawn, index, axis=2).mean(axis=(1, 2))
    low, high = numpy.quantile(runs[0].work / means, [0.025, 0.975])
    return Interval(pooled_rate(runs).value, float(low), float(high))


def test_one_run_pools_to_its_own_interval():
    run = RunSeconds(4.0, (1.0, 1.1, 0.9))
    assert pooled_rate([run]) == rate_interval(run)


def test_equal_runs_do_not_prove_that_there_is_no_noise():
    run = RunSeconds(4.0, (0.5, 0.5, 0.5))
    interval = pooled_rate([run, run])
    assert math.log(interval.high / 8) == pytest.approx(student_quantile(1) * LEAST_SPREAD / math.sqrt(2))


def test_a_prior_narrows_the_interval_of_a_few_runs():
    runs = [RunSeconds(1.0, (seconds,)) for seconds in (1.0, 1.03, 0.98)]
    alone, helped = pooled_rate(runs), pooled_rate(runs, Prior(variance=4e-4, degrees=12.0, most=40.0))
    assert helped.value == alone.value
    assert alone.low < helped.low < helped.high < alone.high


def test_no_run_is_refused():
    with pytest.raises(ValueError, match="no run"):
        pooled_rate([])


@pytest.mark.parametrize("seconds", [(), (0.0,), (1.0, -1.0), (math.inf,), (math.nan,)])
def test_times_that_are_none_are_refused(seconds):
    with pytest.raises(ValueError, match="positive"):
        RunSeconds(1.0, seconds)


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_scaling_an_interval_scales_its_bounds(factor):
    assert Interval(2.0, 1.0, 3.0).scaled(factor) == Interval(2.0 * factor, factor, 3.0 * factor)
    assert Interval(2.0, None, None).scaled(factor) == Interval(2.0 * factor, None, None)


def test_statistics_load_neither_numpy_nor_scipy_at_import():
    modules = ", ".join(f"suite.stats.{name}" for name in ("scaling", "steady_state", "moderated", "quantiles"))
    code = f"import sys, {modules}; print({{'numpy', 'scipy'}} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
