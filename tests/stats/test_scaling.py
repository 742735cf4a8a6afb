from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.stats.compare import ratio_interval
from suite.stats.intervals import RunSeconds
from suite.stats.scaling import scaling_curve


def weak(ranks: int, *seconds: float) -> list[RunSeconds]:
    return [RunSeconds(4.0 * ranks, (second, second)) for second in seconds]


def strong(*seconds: float) -> list[RunSeconds]:
    return [RunSeconds(4.0, (second, second)) for second in seconds]


def test_weak_scaling_at_equal_time_is_perfect():
    curve = scaling_curve("weak", {1: weak(1, 1.0), 4: weak(4, 1.0)})
    assert curve.base_ranks == 1
    assert [point.ranks for point in curve.points] == [1, 4]
    assert curve.points[1].eta.value == pytest.approx(1.0)
    assert curve.points[1].speedup.value == pytest.approx(4.0)


def test_strong_scaling_that_does_not_get_faster_is_worth_one_over_n():
    curve = scaling_curve("strong", {2: strong(1.0), 8: strong(1.0)})
    assert curve.base_ranks == 2
    assert curve.points[1].eta.value == pytest.approx(0.25)


def test_the_base_is_one_by_definition():
    base = scaling_curve("weak", {2: weak(2, 1.0, 1.2), 4: weak(4, 1.1, 1.3)}).points[0]
    assert (base.eta.low, base.eta.value, base.eta.high) == (1.0, 1.0, 1.0)


def test_eta_above_one_is_kept_and_flagged():
    curve = scaling_curve("weak", {1: weak(1, 1.0), 2: weak(2, 0.8)})
    assert curve.points[1].eta.value == pytest.approx(1.25)
    assert [point.above_one for point in curve.points] == [False, True]


def test_the_interval_of_eta_is_that_of_the_ratio_over_the_ratio_of_ranks():
    base, more = weak(1, 1.0, 1.1, 0.9), weak(4, 1.2, 1.3, 1.25)
    eta = scaling_curve("weak", {1: base, 4: more}).points[1].eta
    ratio = ratio_interval(more, base)
    assert (eta.low, eta.high) == pytest.approx((ratio.low / 4, ratio.high / 4))
    assert eta.low < eta.value < eta.high


def test_a_point_of_one_run_has_no_bounds():
    eta = scaling_curve("weak", {1: weak(1, 1.0, 1.1), 2: weak(2, 1.0)}).points[1].eta
    assert eta.low is None and eta.high is None


@given(st.integers(1, 64), st.integers(2, 64), st.floats(0.01, 100), st.floats(0.01, 100))
def test_weak_eta_is_the_ratio_of_times(base, factor, base_seconds, seconds):
    curve = scaling_curve("weak", {base: weak(base, base_seconds), base * factor: weak(base * factor, seconds)})
    assert curve.points[1].eta.value == pytest.approx(base_seconds / seconds)


@given(st.integers(2, 64), st.floats(0.01, 100), st.floats(0.01, 100))
def test_strong_eta_is_the_ratio_of_times_over_the_ratio_of_ranks(factor, base_seconds, seconds):
    curve = scaling_curve("strong", {1: strong(base_seconds), factor: strong(seconds)})
    assert curve.points[1].eta.value == pytest.approx(base_seconds / seconds / factor)


def test_work_that_does_not_fit_the_kind_is_refused():
    with pytest.raises(ValueError, match="weak scaling needs equal work per rank"):
        scaling_curve("weak", {1: strong(1.0), 2: strong(1.0)})
    with pytest.raises(ValueError, match="strong scaling needs equal work of all ranks"):
        scaling_curve("strong", {1: weak(1, 1.0), 2: weak(2, 1.0)})


@pytest.mark.parametrize("points", [{}, {1: []}, {0: strong(1.0)}])
def test_a_curve_without_runs_is_refused(points):
    with pytest.raises(ValueError, match="needs runs"):
        scaling_curve("strong", points)
