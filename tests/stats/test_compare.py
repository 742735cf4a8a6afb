"""Rates compared: verdicts and intervals keep their levels, for one pair and for the best of several."""

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from suite.report.comparing.judging import judge_together
from suite.stats.compare import compare, welch
from suite.stats.intervals import Interval, RunSeconds
from suite.stats.moderated import Prior
from tests.stats.runs import noisy_runs, runs_at

NEAR = (1.01, 1.0101, 1.0099), (1.0, 1.0001, 0.9999)
Rates = tuple[float, ...]


@pytest.mark.parametrize(
    ("a", "b", "margin", "verdict", "equivalent"),
    [
        ((2.0, 2.01, 1.99), (1.0, 1.01, 0.99), 0.05, "faster", False),
        ((1.0, 1.01, 0.99), (2.0, 2.01, 1.99), 0.05, "slower", False),
        ((1.0, 1.3, 0.8), (1.05, 1.4, 0.7), 0.05, "not distinguishable", False),
        (*NEAR, 0.05, "faster", True),
        (*NEAR, 0.005, "faster", False),
        ((1.0, 1.0), (1.0, 1.0), 0.05, "not distinguishable", True),
        ((1.001, 1.001), (1.0, 1.0), 0.05, "not distinguishable", True),
        ((2.0, 2.0), (1.0, 1.0), 0.05, "faster", False),
    ],
    ids=["far", "far below", "noise", "within the margin", "beyond it", "equal", "equal by few runs", "no spread"],
)
def test_a_difference_and_an_equivalence_are_told_apart(a, b, margin, verdict, equivalent):
    comparison = compare(runs_at(*a), runs_at(*b), margin=margin)
    assert (comparison.verdict, comparison.equivalent) == (verdict, equivalent)
    assert comparison.ratio.value == pytest.approx(math.prod(a) ** (1 / len(a)) / math.prod(b) ** (1 / len(b)))


@pytest.mark.parametrize(("left", "right"), [(1, 3), (3, 1), (1, 1)])
def test_one_run_on_a_side_gives_a_ratio_without_bounds_and_no_verdict(left: int, right: int) -> None:
    comparison = compare(runs_at(*[2.0] * left), runs_at(*[1.0] * right))
    assert comparison.ratio.value == pytest.approx(2.0)
    assert comparison.ratio.low is None and comparison.ratio.high is None
    assert (comparison.verdict, comparison.equivalent) == ("not distinguishable", None)


def test_welch_agrees_with_scipy() -> None:
    """scipy.stats.ttest_ind of scipy 1.17 on the logarithms, with equal_var=False."""
    found = welch(runs_at(2.0, 2.2, 1.9, 2.05), runs_at(1.0, 1.4, 0.9))
    low, high = found.interval()
    assert (found.mean / found.error, found.degrees) == pytest.approx((4.633483355449017, 2.2107067294690936))
    assert (math.log(low), math.log(high)) == pytest.approx((0.09579443111074148, 1.1707801983704642))


def ratio_of(a: Sequence[RunSeconds], b: Sequence[RunSeconds], **options: Any) -> Interval:
    return compare(a, b, **options).ratio


rates = st.lists(st.floats(min_value=0.1, max_value=100), min_size=2, max_size=5)


@given(rates, rates)
def test_swapping_the_sides_inverts_the_ratio(a: list[float], b: list[float]) -> None:
    there, back = ratio_of(runs_at(*a), runs_at(*b)), ratio_of(runs_at(*b), runs_at(*a))
    assert there.value == pytest.approx(1 / back.value)
    assert math.log(there.low) == pytest.approx(-math.log(back.high), abs=1e-9)
    assert there.low <= there.value <= there.high


def test_the_ratio_covers_the_truth_with_three_runs_on_each_side() -> None:
    source, trials, hits = random.Random(11), 2000, 0
    for _ in range(trials):
        ratio = ratio_of(noisy_runs(source, 3, 3.0, 0.05), noisy_runs(source, 3, 2.0, 0.02))
        hits += ratio.low <= 1.5 <= ratio.high
    assert 0.93 <= hits / trials <= 0.985


def test_a_difference_at_the_margin_is_called_equivalent_at_most_once_in_twenty() -> None:
    source, trials = random.Random(12), 2000
    called = sum(
        compare(noisy_runs(source, 5, 1.05, 0.02), noisy_runs(source, 5, 1.0, 0.02), margin=0.05).equivalent
        for _ in range(trials)
    )
    assert called / trials <= 0.065


@given(rates, rates, st.integers(2, 20))
def test_more_pairs_widen_the_interval_and_leave_the_ratio(a: list[float], b: list[float], pairs: int) -> None:
    one, many = (ratio_of(runs_at(*a), runs_at(*b), pairs=count) for count in (1, pairs))
    assert one == ratio_of(runs_at(*a), runs_at(*b)) and many.value == one.value
    assert many.low < one.low < one.high < many.high


def test_more_sides_widen_the_interval_as_all_their_pairs_do_and_less_with_a_prior() -> None:
    a, b = runs_at(1.0, 1.02, 0.98), runs_at(1.1, 1.12, 1.08)
    assert ratio_of(a, b, sides=4) == ratio_of(a, b, pairs=6)
    prior = Prior(variance=4e-4, degrees=20.0, most=60.0)
    by_range, by_pairs = ratio_of(a, b, prior=prior, sides=4), ratio_of(a, b, pairs=6, prior=prior)
    assert by_pairs.low < by_range.low < ratio_of(a, b, prior=prior).low
    assert ratio_of(a, b, sides=4).high > by_range.high


def test_a_prior_tells_a_difference_that_few_runs_do_not() -> None:
    a, b = runs_at(1.04, 1.06, 1.02), runs_at(1.0, 1.02, 0.98)
    prior = Prior(variance=4e-4, degrees=30.0, most=60.0)
    assert compare(a, b).verdict == "not distinguishable"
    assert compare(a, b, prior=prior).verdict == "faster"
    assert welch(a, b, prior).degrees == 60.0, "no more than all runs of the plan together"


def test_equal_runs_leave_a_thousandth_of_noise() -> None:
    ratio = ratio_of(runs_at(*[2.0] * 5), runs_at(*[1.0] * 5))
    assert 1.99 < ratio.low < 2.0 < ratio.high < 2.01


SIDES = st.lists(st.floats(0.5, 2.0), min_size=1, max_size=5)
PAIRS = st.lists(st.tuples(SIDES, SIDES), min_size=1, max_size=4)
OPPOSITE = {"faster": "slower", "slower": "faster", "not distinguishable": "not distinguishable"}


def judged(pairs: list[tuple[list[float], list[float]]], factor: float = 1.0):
    """Sides of rows as `suite compare` judges them; every iteration takes ``factor`` times as long."""
    sides = [tuple([RunSeconds(1.0, (factor * each,)) for each in side] for side in pair) for pair in pairs]
    return judge_together(sides, [None] * len(sides), ["same"] * len(sides))


@settings(max_examples=60)
@given(PAIRS)
def test_swapped_sides_have_the_opposite_verdict_and_the_inverse_ratio(pairs):
    one, other = judged(pairs), judged([(after, before) for before, after in pairs])
    for place in range(len(pairs)):
        assert other.verdict(place) == OPPOSITE[one.verdict(place)]
        assert other.each[place].ratio == pytest.approx(1 / one.each[place].ratio)
        (low, high), (least, most) = ((found.low, found.high) for found in (one.tested(place), other.tested(place)))
        assert (low is None) == (least is None)
        if low is not None:
            assert math.log(least) == pytest.approx(-math.log(high), abs=1e-9)
            assert math.log(most) == pytest.approx(-math.log(low), abs=1e-9)
    assert one.equal() == other.equal()


@settings(max_examples=60)
@given(PAIRS, st.floats(1e-6, 1e6))
def test_a_machine_that_is_slower_on_both_sides_changes_no_verdict(pairs, factor):
    one, other = judged(pairs), judged(pairs, factor)
    near = [each.probability for each in one.each if each.probability is not None]
    assume(all(abs(found / one.family.each - 1) > 1e-6 for found in near if one.family.each))
    for place in range(len(pairs)):
        assert other.verdict(place) == one.verdict(place)
        assert other.each[place].ratio == pytest.approx(one.each[place].ratio)


@given(PAIRS)
def test_a_side_against_itself_shows_no_difference(pairs):
    same = judged([(before, before) for before, _ in pairs])
    for place, one in enumerate(same.each):
        assert one.ratio == pytest.approx(1) and same.verdict(place) == "not distinguishable"
