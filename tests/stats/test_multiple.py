"""Many tests at once hold their level together; quantiles are those of printed tables."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.stats.multiple import LEVEL, one_sided, together, two_sided
from suite.stats.quantiles import range_quantile, student_quantile, variance_ratio_quantile

probabilities = st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=30)


def test_the_example_of_the_paper() -> None:
    """Benjamini and Hochberg 1995, section 3.2: of 15 tests four are positive where Bonferroni finds three."""
    found = (0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459)
    found += (0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000)
    family = together(found)
    assert sum(family.positive) == 4 and family.positive[:4] == (True,) * 4
    assert family.each == pytest.approx(0.05 * 4 / 15)
    assert sum(one <= 0.05 / 15 for one in found) == 3


def test_a_test_alone_keeps_its_level() -> None:
    assert together([0.049]).positive == (True,)
    assert together([0.051]).positive == (False,)
    assert together([0.02]).each == together([0.9]).each == together([]).each == LEVEL


@given(probabilities)
def test_an_interval_leaves_its_value_out_exactly_where_its_test_is_positive(found: list[float]) -> None:
    family = together(found)
    if any(family.positive):
        assert family.positive == tuple(one <= family.each for one in found)
    else:
        assert family.each == LEVEL / len(found) < min(found)


@given(probabilities)
def test_the_order_of_the_tests_does_not_matter(found: list[float]) -> None:
    positive = dict(zip(found, together(found).positive, strict=True))
    ordered = sorted(found)
    assert dict(zip(ordered, together(ordered).positive, strict=True)) == positive


@given(probabilities)
def test_what_bonferroni_finds_is_found_and_what_is_above_the_level_is_not(found: list[float]) -> None:
    for one, positive in zip(found, together(found).positive, strict=True):
        assert positive or one > LEVEL / len(found)
        assert not positive or one <= LEVEL


def test_tails_agree_with_students_t() -> None:
    """scipy.stats.t.sf of scipy 1.17."""
    assert two_sided(-0.3, 0.1, 6.5) == pytest.approx(0.021786639199196784)
    assert one_sided(-0.3, 0.1, 6.5) == pytest.approx(0.9891066804004016)


@pytest.mark.parametrize("found", [[-0.1], [1.1], [float("nan")]])
def test_what_is_no_probability_is_refused(found: list[float]) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        together(found)


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
