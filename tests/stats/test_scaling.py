"""Scaling curves: efficiency is a ratio of rates over a ratio of ranks, with the interval of that ratio."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.stats.compare import ratio_interval
from suite.stats.intervals import RunSeconds
from suite.stats.scaling import scaling_curve


def weak(ranks: int, *seconds: float) -> list[RunSeconds]:
    return [RunSeconds(4.0 * ranks, (second, second)) for second in seconds]


@given(st.integers(1, 64), st.integers(2, 64), st.floats(0.01, 100), st.floats(0.01, 100))
def test_eta_is_the_ratio_of_times_and_of_strong_scaling_over_the_ratio_of_ranks(base, factor, before, after):
    more = base * factor
    grown = scaling_curve("weak", {base: weak(base, before), more: weak(more, after)})
    fixed = scaling_curve("strong", {base: weak(1, before), more: weak(1, after)})
    assert grown.base_ranks == fixed.base_ranks == base
    assert [point.ranks for point in grown.points] == [base, more]
    assert grown.points[1].eta.value == pytest.approx(before / after)
    assert grown.points[1].speedup.value == pytest.approx(factor * before / after)
    assert fixed.points[1].eta.value == pytest.approx(before / after / factor)


def test_the_base_is_one_by_definition_and_eta_above_one_is_kept_and_flagged():
    curve = scaling_curve("weak", {2: weak(2, 1.0, 1.02), 4: weak(4, 0.98, 1.01), 8: weak(8, 0.8, 0.81)})
    base = curve.points[0].eta
    assert (base.low, base.value, base.high) == (1.0, 1.0, 1.0)
    assert [point.above_one for point in curve.points] == [False, False, True]


def test_the_interval_of_eta_is_that_of_the_ratio_over_the_ratio_of_ranks():
    base, more = weak(1, 1.0, 1.1, 0.9), weak(4, 1.2, 1.3, 1.25)
    eta = scaling_curve("weak", {1: base, 4: more}).points[1].eta
    ratio = ratio_interval(more, base)
    assert (eta.low, eta.high) == pytest.approx((ratio.low / 4, ratio.high / 4))
    assert eta.low < eta.value < eta.high
    eta = scaling_curve("weak", {1: base, 4: more[:1]}).points[1].eta
    assert eta.low is None and eta.high is None, "one run has no bounds"


@pytest.mark.parametrize(
    ("kind", "points", "says"),
    [
        ("weak", {1: weak(1, 1.0), 2: weak(1, 1.0)}, "weak scaling needs equal work per rank"),
        ("strong", {1: weak(1, 1.0), 2: weak(2, 1.0)}, "strong scaling needs equal work of all ranks"),
        ("strong", {}, "needs runs"),
        ("strong", {1: []}, "needs runs"),
        ("strong", {0: weak(1, 1.0)}, "needs runs"),
    ],
)
def test_work_that_does_not_fit_the_kind_and_a_curve_without_runs_are_refused(kind, points, says):
    with pytest.raises(ValueError, match=says):
        scaling_curve(kind, points)
