"""Bands of predictions: rows that err together count once, few groups widen them, four of five new rows lie inside."""

import numpy as np
import pytest

from suite.planner.parameters import Band, load_priors
from tools.planner.bands import bands_of, ends


def band(logs, groups, kind="training"):
    """The logarithms of both ends of one kind, beside which no other has rows."""
    return np.log(ends(np.full(len(logs), kind), np.exp(logs), np.array(groups))[kind])


def test_the_ends_of_nineteen_groups_are_the_second_and_the_last_but_one():
    assert band(np.arange(19.0), np.arange(19)) == pytest.approx([1, 17])


@pytest.mark.parametrize("groups", [6, 30])
def test_a_group_weighs_the_same_however_many_rows_it_has(groups):
    once, names = np.linspace(-1, 1, groups), np.arange(groups)
    often, longer = np.append(once, np.full(30, once[3])), np.append(names, np.full(30, 3))
    assert band(often, longer) == pytest.approx(band(once, names), abs=0.05)
    assert band(often, np.arange(len(often))) != pytest.approx(band(once, names), abs=0.1)


def test_fewer_groups_have_a_wider_band_and_without_any_it_is_the_priors():
    spreads = [np.ptp(band(np.tile([-0.25, 0.25], count), np.arange(2 * count))) for count in (1, 2, 4, 8)]
    assert spreads == sorted(spreads, reverse=True)
    low, high = band(np.zeros(0), [], "memory")
    assert low == pytest.approx(-high) and 1.2816 * load_priors().spreads["memory"] < high


def test_a_kind_of_few_groups_learns_from_the_others_how_far_sources_lie_apart():
    def of(scatter):
        kinds = np.array(["training"] * 2 + ["iteration"] * 12)
        logs = np.concatenate([[-0.1, 0.1], scatter * np.linspace(-1, 1, 12)])
        return np.ptp(np.log(ends(kinds, np.exp(logs), np.arange(14))["training"]))

    assert of(1.0) > 1.5 * of(0.2)


@pytest.mark.parametrize("groups", [4, 9, 25])
def test_four_of_five_rows_of_new_groups_lie_inside(groups):
    random, inside = np.random.default_rng(1), []
    labels = np.repeat(np.arange(groups), 3)
    for _ in range(400):
        logs = np.repeat(random.normal(0, 0.25, groups), 3) + random.normal(0, 0.1, 3 * groups)
        low, high = band(logs, labels)
        inside.append(low <= random.normal(0, 0.25) + random.normal(0, 0.1) <= high)
    assert 0.75 <= np.mean(inside) <= 0.87


def judged(ratios: list[float], without: list[float]) -> Band:
    """Rows a, a, b, b, c, c, each a group of its own, left out by letter."""
    keys, rest = list("aabbcc"), np.array(without)
    apart = {key: np.where(np.array(keys) == key, np.nan, rest) for key in "abc"}
    return bands_of(["training"] * 6, np.array(ratios), [str(row) for row in range(6)], keys, apart)["training"]


def test_a_row_is_judged_in_a_band_of_fits_that_have_not_seen_it():
    near, far = [1.0, 1.1, 1.0, 1.1, 1.0, 1.1], [1.0, 1.1, 1.0, 1.1, 9.0, 9.5]
    assert judged(near, near).held == 1.0
    own = judged(far, far)
    assert own.rows == own.groups == 6
    assert own.held == pytest.approx(4 / 6)  # the two far ones widen the others' band, never their own
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0]
    assert judged(values, [each / 9 for each in values]).held == 0.0
