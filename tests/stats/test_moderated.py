"""What rows of a plan share of their variance, and which of their runs were slow."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.stats.moderated import FEWEST_ROWS, LEAST_SPREAD, Prior, Spread, moderate, slow_runs, spread


def rows(source: random.Random, count: int, runs: int, noise: float) -> list[list[float]]:
    return [[source.gauss(0, noise) for _ in range(runs)] for _ in range(count)]


def test_rows_of_equal_noise_share_much_of_it():
    prior = moderate(rows(random.Random(1), 40, 5, 0.02))
    assert prior is not None
    assert math.sqrt(prior.variance) == pytest.approx(0.02, rel=0.15)
    assert prior.degrees > 8
    assert prior.most == 160


def test_rows_of_unlike_noise_share_little():
    source = random.Random(2)
    alike = moderate(rows(source, 16, 5, 0.02))
    unlike = moderate([*rows(source, 8, 5, 0.005), *rows(source, 8, 5, 0.1)])
    assert unlike is None or unlike.degrees < 0.3 * alike.degrees


def test_the_pooled_variance_and_the_degrees_of_smyth_come_back():
    """Of variances drawn from an inverse chi squared, whose mean is its scale times degrees / (degrees - 2)."""
    source, degrees, variance = random.Random(3), 8.0, 4e-4
    drawn = []
    for _ in range(3000):
        own = variance * degrees / (2 * source.gammavariate(degrees / 2, 1))
        drawn.append([source.gauss(0, math.sqrt(own)) for _ in range(5)])
    prior = moderate(drawn)
    assert prior.variance == pytest.approx(variance * degrees / (degrees - 2), rel=0.1)
    assert 0.6 * degrees < prior.degrees < 1.2 * degrees


@pytest.mark.parametrize("groups", [[], [[0.0, 0.1]] * (FEWEST_ROWS - 1), [[0.0]] * 20])
def test_few_rows_share_nothing(groups):
    assert moderate(groups) is None


def test_rows_of_one_run_are_no_rows_of_the_prior():
    found = rows(random.Random(4), 12, 4, 0.02)
    assert moderate([*found, [0.5], []]) == moderate(found)


@pytest.mark.parametrize(
    ("values", "prior", "variance", "degrees"),
    [
        ((0.0, 0.02, 0.04), None, 4e-4, 2.0),
        ((0.0, 0.02, 0.04), Prior(variance=1e-4, degrees=6.0, most=50.0), (2 * 4e-4 + 6 * 1e-4) / 8, 8.0),
        ((0.0, 0.2, 0.4), Prior(variance=1e-4, degrees=6.0, most=50.0), 0.04, 2.0),
        ((0.0, 0.02, 0.04), Prior(variance=4e-4, degrees=500.0, most=32.0), 4e-4, 32.0),
    ],
    ids=["alone", "drawn by degrees", "far noisier and left to itself", "no more degrees than all runs"],
)
def test_a_spread_is_drawn_to_the_priors(values, prior, variance, degrees):
    assert spread(values, prior) == Spread(pytest.approx(variance), degrees)


@given(st.integers(2, 6), st.one_of(st.none(), st.just(Prior(variance=1e-12, degrees=9.0, most=40.0))))
def test_equal_values_do_not_prove_that_there_is_no_noise(count, prior):
    assert spread([0.7] * count, prior).variance == LEAST_SPREAD**2


CALM = (0.0, 0.004, -0.003, 0.006, 0.001)
SHARED = Prior(variance=4e-4, degrees=10.0, most=60.0)


@pytest.mark.parametrize(
    ("values", "prior", "slow"),
    [
        (CALM, None, ()),
        ((*CALM[:2], -0.3, *CALM[3:]), None, (2,)),
        ((*CALM[:2], 0.3, *CALM[3:]), None, ()),
        ((0.0, 0.001, -0.3, -0.301), None, ()),
        ((0.0, 0.001, 0.002, -0.3, -0.301), None, (3, 4)),
        ((0.0, -0.3), None, ()),
        ((0.0, 0.03, -0.2), None, ()),
        ((0.0, 0.03, -0.2), SHARED, (2,)),
    ],
    ids=["calm", "below", "above", "half of them", "two of five", "of two", "of three", "of three by a prior"],
)
def test_a_run_far_below_most_others_is_slow(values, prior, slow):
    assert slow_runs(values, prior) == slow


def test_rows_with_slow_runs_are_left_out_of_what_the_others_share():
    found = rows(random.Random(5), 16, 5, 0.02)
    without = moderate(found[3:])
    for row in found[:3]:
        row[1] -= 0.5
    assert moderate(found) == without
