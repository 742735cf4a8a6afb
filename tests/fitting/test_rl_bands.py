"""Bands of predictions: rows that err together count once, few groups widen them, four of five new rows lie inside."""

from types import SimpleNamespace

import numpy as np
import pytest

from suite.fitting.rl_bands import FEWEST_ORDERED, band_of, bands_of, ends
from suite.fitting.rl_held import KeptBack
from suite.stats.quantiles import student_quantile


def test_the_ends_of_nine_groups_are_the_smallest_and_the_largest():
    ratios = np.exp(np.arange(9.0))
    low, high = ends(ratios, [str(each) for each in range(9)])
    assert (low, high) == (pytest.approx(1.0), pytest.approx(np.exp(8)))


def test_a_group_weighs_the_same_however_many_rows_it_has():
    once = np.exp(np.linspace(-1, 1, 12))
    groups = [str(each) for each in range(12)]
    often = np.concatenate([once, np.full(30, once[4])])
    assert ends(often, [*groups, *["4"] * 30]) == pytest.approx(ends(once, groups), rel=0.02)
    assert ends(often, [str(each) for each in range(42)]) != pytest.approx(ends(once, groups), rel=0.1)


def test_few_groups_have_the_ends_of_student_for_one_more():
    logs = np.array([-0.3, 0.1, 0.2, 0.5])
    assert len(logs) < FEWEST_ORDERED
    reach = student_quantile(3, 0.9) * logs.std(ddof=1) * np.sqrt(1 + 1 / 4)
    low, high = ends(np.exp(logs), list("abcd"))
    assert (np.log(low), np.log(high)) == (pytest.approx(logs.mean() - reach), pytest.approx(logs.mean() + reach))


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


def judged(values, held, without):
    """A table of one row a value; keys a, a, b, b, c, c, and groups of their own."""
    table = SimpleNamespace(
        measured=[SimpleNamespace(row=row, kind="sync", value=value) for row, value in enumerate(values)]
    )
    keys = list("aabbcc")
    full = {key: np.where(np.array(keys) == key, np.nan, without) for key in "abc"}
    return bands_of(table, KeptBack(keys, np.array(held), full), [str(row) for row in range(6)])["sync"]


def test_a_row_is_judged_in_a_band_that_it_did_not_choose():
    near, far = [1.0, 1.1, 1.0, 1.1, 1.0, 1.1], [1.0, 1.1, 1.0, 1.1, 9.0, 9.5]
    ones = np.ones(6)
    assert judged(near, ones, ones).held == 1.0
    own = judged(far, ones, ones)
    assert own.rows == own.groups == 6
    assert own.held == pytest.approx(4 / 6)  # the two far ones widen the others' band, never their own
    assert own.high > 9


def test_the_band_that_judges_is_of_fits_without_the_judged_rows():
    values, ones = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0], np.ones(6)
    assert judged(values, ones, 3 * ones).held == 0.0
    assert judged(values, ones, 3 * ones).high == judged(values, ones, ones).high


def test_without_pairs_of_fits_groups_judge_each_other():
    found = band_of(np.array([1.0, 1.1, 5.0]), list("abc"))
    assert found.held == pytest.approx(2 / 3)
    assert found.high > 5
