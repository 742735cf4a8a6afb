"""Changes of level: the partition is the best there is, alarms are as rare as promised, and real changes are found."""

from itertools import combinations, pairwise

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.stats.changes import LEAST_VALUES, LEVEL, find_changes, without_outliers
from suite.stats.changes import _places_tried as places_tried
from suite.stats.changes import _Series as Stretches


def noise(seed: int, *shape: int, spread: float = 0.01) -> numpy.ndarray:
    return numpy.random.default_rng(seed).normal(0, spread, shape)


def places(values: numpy.ndarray, **asked: float) -> list[int]:
    return [change.place for change in find_changes(list(values), **asked).changes]


def partitions(bounds: list[int], changes: int) -> list[list[int]]:
    """Every way to put so many changes between these bounds, one by one."""
    free = sorted(set(range(1, bounds[-1])) - set(bounds))
    every = [sorted([*bounds, *inner]) for inner in combinations(free, changes)]
    return [cuts for cuts in every if all(high - low >= LEAST_VALUES for low, high in pairwise(cuts))]


@settings(max_examples=30)
@given(st.integers(0, 1 << 32), st.integers(1, 3))
def test_no_other_partition_leaves_less(seed: int, changes: int) -> None:
    rng = numpy.random.default_rng(seed)
    series = Stretches(rng.normal(0, 1, 12), rng.uniform(0.5, 2, 12), 0.0)
    assert series.partition(changes) == min(partitions([0, 12], changes), key=series.left)


@given(st.lists(st.integers(LEAST_VALUES, 7), min_size=1, max_size=3), st.integers(1, 3))
def test_every_way_of_some_changes_is_counted(lengths: list[int], changes: int) -> None:
    bounds = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    assert places_tried(lengths, changes) == len(partitions(bounds, changes))


def test_a_step_is_found_with_its_size_and_its_place() -> None:
    values = noise(1, 20)
    values[13:] -= 0.10
    history = find_changes(list(values))
    (change,) = history.changes
    low, high = change.interval()
    assert change.error == pytest.approx(history.noise * (1 / change.place + 1 / (20 - change.place)) ** 0.5)
    assert change.first <= 13 <= change.last and change.last - change.first <= 2
    assert low < -0.09 and high > -0.11 and high - low < 0.03
    assert change.probability < 1e-6


@pytest.mark.parametrize(
    ("count", "steps"),
    [(12, {10: -0.08}), (40, {20: -0.06, 23: 0.06}), (60, {10: 0.07, 20: -0.07, 30: 0.07, 40: -0.07, 50: 0.07})],
    ids=["a loss with its second point", "what comes and goes", "many"],
)
def test_all_steps_are_found(count: int, steps: dict[int, float]) -> None:
    values = noise(2, count)
    for place, size in steps.items():
        values[place:] += size
    assert places(values) == list(steps)


def test_one_value_far_out_is_no_level() -> None:
    for place in (0, 1, 9, 18, 19):
        values = noise(5, 20)
        values[place] -= 0.5
        assert places(values) == []
    assert places(numpy.append(noise(2, 10), -0.08)) == [], "nor is the last of few"


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
    assert places(numpy.array([0.0, 0.01, 0.0, 1.0, 1.01, 1.0])) == [3], "six tell of one that is large"


def test_weights_that_are_none_are_refused() -> None:
    for weights in ([1.0], [1.0, 0.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match="weight above 0"):
            find_changes([1.0, 2.0], weights)


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


@st.composite
def histories(draw: st.DrawFn) -> numpy.ndarray:
    """Levels that last some values each, with seeded noise."""
    noise = numpy.random.default_rng(draw(st.integers(0, 2**32))).normal(0, 0.01, 40)
    levels = draw(st.lists(st.sampled_from([1.0, 1.02, 1.1, 1.5]), min_size=1, max_size=4))
    return noise + numpy.resize(numpy.repeat(levels, 40 // len(levels)), 40)


@settings(max_examples=40)
@given(histories(), st.floats(1e-6, 1e6), st.floats(-100, 100))
def test_neither_the_unit_nor_the_origin_of_a_history_moves_its_changes(values, factor, origin):
    one, other = (find_changes(list(each)).changes for each in (values, factor * (values + origin)))
    assert [(each.place, each.first, each.last) for each in one] == [
        (each.place, each.first, each.last) for each in other
    ]
    for ours, theirs in zip(one, other, strict=True):
        assert theirs.difference == pytest.approx(factor * ours.difference)
        assert theirs.error == pytest.approx(factor * ours.error)


@settings(max_examples=40)
@given(histories())
def test_a_history_upside_down_has_the_opposite_changes_at_the_same_places(values):
    one, other = find_changes(list(values)), find_changes(list(-values))
    assert [each.place for each in one.changes] == [each.place for each in other.changes]
    assert [each.difference for each in other.changes] == pytest.approx([-each.difference for each in one.changes])
    assert list(other.levels) == pytest.approx([-level for level in one.levels])
    bounds = [0, *(each.place for each in one.changes), len(values)]
    assert bounds == sorted(set(bounds)) and len(one.levels) == len(bounds) - 1
