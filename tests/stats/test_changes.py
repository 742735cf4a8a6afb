"""Changes of level: the partition is the best there is, alarms are as rare as promised, and real changes are found."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy
import pytest

from suite.stats.changes import LEAST_VALUES, LEVEL, find_changes, without_outliers
from suite.stats.changes import _places_tried as places_tried
from suite.stats.changes import _Series as Stretches


def noise(seed: int, *shape: int, spread: float = 0.01) -> numpy.ndarray:
    return numpy.random.default_rng(seed).normal(0, spread, shape)


def places(values: numpy.ndarray, **asked: float) -> list[int]:
    return [change.place for change in find_changes(list(values), **asked).changes]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("changes", [1, 2, 3])
def test_no_other_partition_leaves_less(seed: int, changes: int) -> None:
    rng = numpy.random.default_rng(seed)
    values, weights = rng.normal(0, 1, 12), rng.uniform(0.5, 2, 12)
    series = Stretches(values, weights, 0.0)
    every = [
        (0, *inner, 12)
        for inner in combinations(range(1, 12), changes)
        if all(high - low >= LEAST_VALUES for low, high in pairwise((0, *inner, 12)))
    ]
    best = min(every, key=series.left)
    assert series.partition(changes) == list(best)
    assert len(every) == math.comb(12 - (changes + 1) * (LEAST_VALUES - 1) - 1, changes)


def test_every_way_of_some_changes_is_counted() -> None:
    def counted(lengths: tuple[int, ...], changes: int) -> int:
        bounds = numpy.cumsum([0, *lengths])
        free = sorted(set(range(1, bounds[-1])) - set(bounds))
        every = (sorted({*bounds, *inner}) for inner in combinations(free, changes))
        return sum(all(high - low >= LEAST_VALUES for low, high in pairwise(cuts)) for cuts in every)

    for lengths in ((9,), (4, 7), (3, 5, 6)):
        assert [places_tried(lengths, one) for one in (1, 2, 3)] == [counted(lengths, one) for one in (1, 2, 3)]


def test_a_step_is_found_with_its_size_and_its_place() -> None:
    values = noise(1, 20)
    values[13:] -= 0.10
    (change,) = find_changes(list(values)).changes
    low, high = change.interval()
    assert change.first <= 13 <= change.last and change.last - change.first <= 2
    assert low < -0.09 and high > -0.11 and high - low < 0.03
    assert change.probability < 1e-6


def test_a_loss_shows_with_its_second_point_and_not_with_its_first() -> None:
    values = noise(2, 12)
    values[10:] -= 0.08
    assert places(values) == [10]
    assert places(values[:11]) == []


def test_what_comes_and_goes_is_two_changes() -> None:
    values = noise(3, 40)
    values[20:23] -= 0.06
    assert places(values) == [20, 23]


def test_many_changes_are_all_found() -> None:
    values = noise(4, 60)
    for number, place in enumerate((10, 20, 30, 40, 50)):
        values[place:] += 0.07 * (-1) ** number
    assert places(values) == [10, 20, 30, 40, 50]


def test_one_value_far_out_is_no_level() -> None:
    for place in (0, 1, 9, 18, 19):
        values = noise(5, 20)
        values[place] -= 0.5
        assert places(values) == []


def test_only_single_values_are_put_to_their_neighbours() -> None:
    values = noise(6, 20)
    values[10:12] -= 0.5
    assert numpy.array_equal(without_outliers(values), values)
    values[5] += 0.5
    assert without_outliers(values)[5] < 0.1 and numpy.array_equal(without_outliers(values)[10:12], values[10:12])


def test_a_value_of_little_weight_decides_little() -> None:
    values = numpy.array([0.0, 0.01] * 6 + [-0.1, -0.1] + [0.01, 0.0] * 3)
    weights = [1.0] * 12 + [0.01, 0.01] + [1.0] * 6
    assert places(values) == [12, 14]
    assert find_changes(list(values), weights).changes == ()


def test_what_the_noise_is_known_to_be_is_not_undercut() -> None:
    values = [0.0, 0.0, 0.0, 0.0, 0.01, 0.01, 0.01, 0.01]
    assert places(numpy.array(values)) == [4]
    assert find_changes(values, least_noise=0.01).changes == ()


def test_few_values_tell_nothing_and_raise_nothing() -> None:
    for count in range(6):
        assert find_changes([float(one) for one in range(count)]).changes == ()
    assert find_changes([]).levels == () and find_changes([1.0]).levels == (1.0,)


def test_weights_that_are_none_are_refused() -> None:
    for weights in ([1.0], [1.0, 0.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match="weight above 0"):
            find_changes([1.0, 2.0], weights)


def test_a_factor_on_all_values_changes_nothing_but_sizes() -> None:
    values = noise(7, 30)
    values[12:] += 0.05
    one, other = (find_changes(list(values * factor)).changes[0] for factor in (1, 1000))
    assert (one.place, one.first, one.last) == (other.place, other.first, other.last)
    assert other.difference == pytest.approx(1000 * one.difference)
    assert other.probability == pytest.approx(one.probability)


@pytest.mark.parametrize("count", [8, 30])
def test_histories_without_a_change_show_one_as_rarely_as_promised(count: int) -> None:
    """400 seeded histories; 4 alarms are expected at most, and with 99.9 % no more than 11 come."""
    alarms = sum(bool(places(values)) for values in noise(8, 400, count))
    assert alarms <= 11 and pytest.approx(0.01) == LEVEL


def test_a_change_of_four_deviations_is_found_and_its_interval_holds_its_place() -> None:
    """Seeded: ten values before and ten after."""
    found = held = 0
    for values in noise(9, 200, 20):
        values[10:] -= 0.04
        changes = find_changes(list(values)).changes
        found += len(changes) == 1
        held += any(change.first <= 10 <= change.last for change in changes)
    assert found >= 190 and held >= 188
