"""What holds of every comparison and every history: no side is preferred, and no unit and no direction matters."""

from __future__ import annotations

import math

import numpy
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from suite.report.comparing.verdicts import judge_together
from suite.stats.changes import find_changes
from suite.stats.intervals import RunSeconds

FACTORS = st.floats(1e-6, 1e6)
RATES = st.lists(st.floats(0.5, 2.0), min_size=1, max_size=5)
PAIRS = st.lists(st.tuples(RATES, RATES), min_size=1, max_size=4)
OPPOSITE = {"faster": "slower", "slower": "faster", "not distinguishable": "not distinguishable"}


def judged(pairs: list[tuple[list[float], list[float]]], factor: float = 1.0):
    """Sides of rows as `suite compare` judges them; every iteration takes ``factor`` times as long."""
    sides = [tuple([RunSeconds(1.0, (factor * each,)) for each in side] for side in pair) for pair in pairs]
    return judge_together(sides, [None] * len(sides), ["same"] * len(sides))


@settings(max_examples=60)
@given(PAIRS)
def test_swapped_sides_have_the_opposite_verdict_and_the_inverse_ratio(pairs):
    one, other = judged(pairs), judged([(after, before) for before, after in pairs])
    for place in range(len(pairs)):
        assert other.verdict(place) == OPPOSITE[one.verdict(place)]
        assert other.each[place].ratio == pytest.approx(1 / one.each[place].ratio)
        (low, high), (least, most) = one.bounds(place), other.bounds(place)
        assert (low is None) == (least is None)
        if low is not None:
            assert math.log(least) == pytest.approx(-math.log(high), abs=1e-9)
            assert math.log(most) == pytest.approx(-math.log(low), abs=1e-9)
    assert one.equal(0.05) == other.equal(0.05)


@settings(max_examples=60)
@given(PAIRS, FACTORS)
def test_a_machine_that_is_slower_on_both_sides_changes_no_verdict(pairs, factor):
    one, other = judged(pairs), judged(pairs, factor)
    near = [each.probability for each in one.each if each.probability is not None]
    assume(all(abs(found / one.family.each - 1) > 1e-6 for found in near if one.family.each))
    for place in range(len(pairs)):
        assert other.verdict(place) == one.verdict(place)
        assert other.each[place].ratio == pytest.approx(one.each[place].ratio)


@given(PAIRS)
def test_a_side_against_itself_shows_no_difference(pairs):
    same = judged([(before, before) for before, _ in pairs])
    for place, one in enumerate(same.each):
        assert one.ratio == pytest.approx(1) and same.verdict(place) == "not distinguishable"


@st.composite
def histories(draw: st.DrawFn) -> numpy.ndarray:
    """Levels that last some values each, with seeded noise."""
    noise = numpy.random.default_rng(draw(st.integers(0, 2**32))).normal(0, 0.01, 40)
    levels = draw(st.lists(st.sampled_from([1.0, 1.02, 1.1, 1.5]), min_size=1, max_size=4))
    return noise + numpy.resize(numpy.repeat(levels, 40 // len(levels)), 40)


@settings(max_examples=40)
@given(histories(), FACTORS, st.floats(-100, 100))
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
