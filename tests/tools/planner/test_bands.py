"""Bands of predictions: rows that err together count once, few groups widen them, four of five new rows lie inside."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import t as student

from suite.planner.parameters import Band
from tools.planner.bands import FEWEST_ORDERED, band_of, ends


def test_the_ends_of_nine_groups_are_the_smallest_and_the_largest():
    low, high = ends(np.exp(np.arange(9.0)), [str(each) for each in range(9)])
    assert (low, high) == (pytest.approx(1.0), pytest.approx(np.exp(8)))


def test_a_group_weighs_the_same_however_many_rows_it_has():
    once = np.exp(np.linspace(-1, 1, 12))
    groups = [str(each) for each in range(12)]
    often = np.concatenate([once, np.full(30, once[4])])
    assert ends(often, [*groups, *["4"] * 30]) == pytest.approx(ends(once, groups), rel=0.02)
    assert ends(often, [str(each) for each in range(42)]) != pytest.approx(ends(once, groups), rel=0.1)


def test_few_groups_have_the_ends_of_student_for_one_more_and_one_alone_the_widest():
    logs = np.array([-0.3, 0.1, 0.2, 0.5])
    assert len(logs) < FEWEST_ORDERED
    reach = student.ppf(0.9, 3) * logs.std(ddof=1) * np.sqrt(1 + 1 / 4)
    low, high = ends(np.exp(logs), list("abcd"))
    assert (np.log(low), np.log(high)) == (pytest.approx(logs.mean() - reach), pytest.approx(logs.mean() + reach))
    assert ends(np.exp(logs), list("aaaa")) == (0.25, 4.0)


@pytest.mark.parametrize("groups", [4, 9, 25])
def test_four_of_five_rows_of_new_groups_lie_inside(groups):
    random, inside = np.random.default_rng(5), []
    labels = np.repeat([str(each) for each in range(groups)], 3)
    for _ in range(1500):
        logs = np.repeat(random.normal(0.1, 0.3, groups), 3) + random.normal(0, 0.1, 3 * groups)
        low, high = ends(np.exp(logs), labels)
        new = np.exp(random.normal(0.1, 0.3) + random.normal(0, 0.1))
        inside.append(low <= new <= high)
    assert 0.76 <= np.mean(inside) <= 0.84


def judged(ratios: list[float], without: list[float]) -> Band:
    """Rows a, a, b, b, c, c, each a group of its own, left out by letter."""
    keys, rest = list("aabbcc"), np.array(without)
    apart = {key: np.where(np.array(keys) == key, np.nan, rest) for key in "abc"}
    return band_of(np.array(ratios), [str(row) for row in range(6)], keys, apart)


def test_a_row_is_judged_in_a_band_of_fits_that_have_not_seen_it():
    near, far = [1.0, 1.1, 1.0, 1.1, 1.0, 1.1], [1.0, 1.1, 1.0, 1.1, 9.0, 9.5]
    assert judged(near, near).held == 1.0
    own = judged(far, far)
    assert own.rows == own.groups == 6 and own.high > 9
    assert own.held == pytest.approx(4 / 6)  # the two far ones widen the others' band, never their own
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
    assert judged(values, [each / 3 for each in values]).held == 0.0
