from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.stats.compare import compare, ratio_interval, welch
from suite.stats.intervals import RunSeconds
from suite.stats.moderated import Prior


def runs_at(*rates: float) -> list[RunSeconds]:
    return [RunSeconds(1.0, (1 / rate, 1 / rate)) for rate in rates]


def noisy_runs(source: random.Random, count: int, rate: float, spread: float) -> list[RunSeconds]:
    return runs_at(*(rate * math.exp(source.gauss(0, spread)) for _ in range(count)))


def test_a_clear_difference_is_faster_one_way_and_slower_the_other():
    fast, slow = runs_at(2.0, 2.01, 1.99), runs_at(1.0, 1.01, 0.99)
    assert compare(fast, slow).verdict == "faster"
    assert compare(slow, fast).verdict == "slower"
    assert compare(fast, slow).ratio.value == pytest.approx(2.0, rel=1e-3)


def test_noise_larger_than_the_difference_is_neither_a_win_nor_equality():
    comparison = compare(runs_at(1.0, 1.3, 0.8), runs_at(1.05, 1.4, 0.7))
    assert comparison.verdict == "not distinguishable"
    assert comparison.equivalent is False


def test_rates_within_the_margin_are_equivalent_and_may_still_be_faster():
    comparison = compare(runs_at(1.01, 1.0101, 1.0099), runs_at(1.0, 1.0001, 0.9999), margin=0.05)
    assert comparison.equivalent is True
    assert comparison.verdict == "faster"
    assert compare(runs_at(1.01, 1.0101, 1.0099), runs_at(1.0, 1.0001, 0.9999), margin=0.005).equivalent is False


@pytest.mark.parametrize(("left", "right"), [(1, 3), (3, 1), (1, 1)])
def test_one_run_on_a_side_gives_a_ratio_without_bounds_and_no_verdict(left, right):
    comparison = compare(runs_at(*[2.0] * left), runs_at(*[1.0] * right))
    assert comparison.ratio.value == pytest.approx(2.0)
    assert comparison.ratio.low is None and comparison.ratio.high is None
    assert comparison.verdict == "not distinguishable"
    assert comparison.equivalent is None
    assert "at least 2" in comparison.reasons[0]


def test_runs_without_any_spread_are_compared():
    assert compare(runs_at(1.0, 1.0), runs_at(1.0, 1.0)).verdict == "not distinguishable"
    assert compare(runs_at(1.0, 1.0), runs_at(1.0, 1.0)).equivalent is True
    assert compare(runs_at(2.0, 2.0), runs_at(1.0, 1.0)).verdict == "faster"


def test_welch_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    a, b = (2.0, 2.2, 1.9, 2.05), (1.0, 1.4, 0.9)
    expected = stats.ttest_ind([math.log(x) for x in a], [math.log(x) for x in b], equal_var=False)
    found = welch(runs_at(*a), runs_at(*b))
    assert found.mean / found.error == pytest.approx(expected.statistic)
    assert found.degrees == pytest.approx(expected.df)
    low, high = found.interval()
    bounds = expected.confidence_interval(0.95)
    assert (math.log(low), math.log(high)) == pytest.approx((bounds.low, bounds.high))


rates = st.lists(st.floats(min_value=0.1, max_value=100), min_size=2, max_size=5)


@given(rates, rates)
def test_swapping_the_sides_inverts_the_ratio(a, b):
    there, back = ratio_interval(runs_at(*a), runs_at(*b)), ratio_interval(runs_at(*b), runs_at(*a))
    assert there.value == pytest.approx(1 / back.value)
    assert math.log(there.low) == pytest.approx(-math.log(back.high), abs=1e-9)
    assert there.low <= there.value <= there.high


def test_the_ratio_covers_the_truth_with_three_runs_on_each_side():
    source = random.Random(11)
    trials = 2000
    hits = 0
    for _ in range(trials):
        ratio = ratio_interval(noisy_runs(source, 3, 3.0, 0.05), noisy_runs(source, 3, 2.0, 0.02))
        hits += ratio.low <= 1.5 <= ratio.high
    assert 0.93 <= hits / trials <= 0.985


def test_a_difference_at_the_margin_is_called_equivalent_at_most_once_in_twenty():
    source = random.Random(12)
    trials = 2000
    called = sum(
        compare(noisy_runs(source, 5, 1.05, 0.02), noisy_runs(source, 5, 1.0, 0.02), margin=0.05).equivalent
        for _ in range(trials)
    )
    assert called / trials <= 0.065


@pytest.mark.parametrize(("sides", "runs"), [(2, 3), (3, 5), (6, 5), (10, 3)])
def test_among_equal_sides_the_best_beats_another_at_most_once_in_twenty_groups(sides: int, runs: int):
    """The best is chosen by its rate: with six sides, pairs judged one by one would differ in three groups of ten."""
    source = random.Random(13)
    trials, together, alone = 400, 0, 0
    for _ in range(trials):
        best, *others = sorted(
            (noisy_runs(source, runs, 1.0, 0.05) for _ in range(sides)), key=lambda side: -sum(run.rate for run in side)
        )
        together += any(compare(other, best, sides=sides).verdict == "slower" for other in others)
        alone += any(compare(other, best).verdict == "slower" for other in others)
    assert together / trials <= 0.07
    assert sides < 6 or alone / trials > 0.2


def test_more_sides_widen_the_interval_as_all_their_pairs_do_and_less_with_a_prior():
    a, b = runs_at(1.0, 1.02, 0.98), runs_at(1.1, 1.12, 1.08)
    assert ratio_interval(a, b, sides=4) == ratio_interval(a, b, pairs=6)
    prior = Prior(variance=4e-4, degrees=20.0, most=60.0)
    by_range, by_pairs = ratio_interval(a, b, prior=prior, sides=4), ratio_interval(a, b, pairs=6, prior=prior)
    assert by_pairs.low < by_range.low < ratio_interval(a, b, prior=prior).low
    assert ratio_interval(a, b, sides=4).high > by_range.high


def test_a_prior_tells_a_difference_that_few_runs_do_not():
    a, b = runs_at(1.04, 1.06, 1.02), runs_at(1.0, 1.02, 0.98)
    prior = Prior(variance=4e-4, degrees=30.0, most=60.0)
    assert compare(a, b).verdict == "not distinguishable"
    assert compare(a, b, prior=prior).verdict == "faster"
    assert welch(a, b, prior).degrees == 60.0, "no more than all runs of the plan together"


def test_equal_figures_of_a_few_runs_are_no_proof():
    assert compare(runs_at(1.001, 1.001), runs_at(1.0, 1.0)).verdict == "not distinguishable"
    low, high = (lambda ratio: (ratio.low, ratio.high))(ratio_interval(runs_at(*[2.0] * 5), runs_at(*[1.0] * 5)))
    assert 1.99 < low < 2.0 < high < 2.01


def test_more_pairs_widen_the_interval_and_leave_the_ratio():
    a, b = runs_at(1.0, 1.1, 0.9), runs_at(2.0, 2.1, 1.9)
    one, many = ratio_interval(a, b), ratio_interval(a, b, pairs=10)
    assert many.value == one.value
    assert many.low < one.low < one.high < many.high
    assert ratio_interval(a, b, pairs=1) == one


def test_runs_that_share_the_noise_of_their_round_are_told_apart_too_seldom_never_too_often():
    source = random.Random(14)
    trials, false = 1000, 0
    for _ in range(trials):
        rounds = [math.exp(source.gauss(0, 0.05)) for _ in range(5)]
        first, second = (runs_at(*(common * math.exp(source.gauss(0, 0.03)) for common in rounds)) for _ in range(2))
        false += compare(first, second).verdict != "not distinguishable"
    assert false / trials <= 0.05


def test_a_margin_of_nothing_and_a_side_without_runs_are_refused():
    with pytest.raises(ValueError, match="margin"):
        compare(runs_at(1.0, 1.0), runs_at(1.0, 1.0), margin=0.0)
    with pytest.raises(ValueError, match="at least one run"):
        ratio_interval([], runs_at(1.0))
