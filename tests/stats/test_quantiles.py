"""Quantiles against printed tables."""

import pytest

from suite.stats.quantiles import range_quantile, student_quantile, variance_ratio_quantile


@pytest.mark.parametrize(
    ("probability", "degrees", "expected"), [(0.975, 2, 4.302652729696142), (0.95, 4, 2.131846786)]
)
def test_student_quantiles_are_those_of_the_tables(probability, degrees, expected):
    assert student_quantile(degrees, probability) == pytest.approx(expected, rel=1e-8)


def test_quantiles_of_variance_ratios_are_those_of_the_tables():
    assert variance_ratio_quantile(2, 10, 0.95) == pytest.approx(4.1028, rel=1e-4)


@pytest.mark.parametrize(
    ("sides", "degrees", "probability", "expected"),
    [
        # tables of the studentized range, as in Harter (1960)
        (3, 10, 0.95, 3.877),
        (4, 16, 0.95, 4.046),
        (6, 60, 0.95, 4.163),
        (10, 5, 0.99, 10.24),
        (4, 2, 0.95, 9.798),
    ],
)
def test_studentized_ranges_are_those_of_the_tables(sides, degrees, probability, expected):
    assert range_quantile(sides, degrees, probability) == pytest.approx(expected, rel=1e-3)


def test_a_range_of_two_is_students_t():
    assert range_quantile(2, 7, 0.95) == pytest.approx(2**0.5 * student_quantile(7), rel=1e-9)


def test_degrees_between_two_steps_count_as_the_lower():
    assert range_quantile(4, 52.9) == range_quantile(4, 50) > range_quantile(4, 55)
    assert range_quantile(3, 1e9) == pytest.approx(3.315, rel=1e-3)


@pytest.mark.parametrize(("sides", "degrees"), [(1, 5), (3, 0)])
def test_a_range_of_one_or_without_degrees_is_refused(sides, degrees):
    with pytest.raises(ValueError, match="range"):
        range_quantile(sides, degrees)
