"""What holds of every row that gets runs until its rate is precise enough."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from suite.spec.stopping import Stopping
from suite.stats.intervals import RunSeconds
from suite.stats.precision import Outlook, Sampled, judge

SECONDS = st.floats(0.5, 2.0)
ROWS = st.lists(st.lists(SECONDS, min_size=1, max_size=12), min_size=1, max_size=4)
PRECISIONS = st.floats(0.001, 1.0)


def rule(precision: float, least: int = 3, most: int = 12) -> Stopping:
    return Stopping(precision=precision, least=least, most=most, iterations="fixed")


def looked_at(rows: list[list[float]], asked: Stopping, factor: float = 1.0) -> tuple[Outlook, ...]:
    runs = [tuple(RunSeconds(1.0, (factor * each,)) for each in row) for row in rows]
    return judge([Sampled(each, len(each), 1) for each in runs], asked)


@settings(max_examples=80)
@given(ROWS, PRECISIONS, st.integers(3, 6))
def test_a_row_stops_as_precise_as_was_asked_or_because_its_runs_are_spent(rows, precision, least):
    """Never above the asked half-width, never before the least runs, never on after the most."""
    asked = rule(precision, least)
    for row, found in zip(rows, looked_at(rows, asked), strict=True):
        if found.state == "reached":
            assert len(row) >= least and found.more_runs == 0
            assert found.half_width is not None and found.half_width <= precision * (1 + 1e-9)
        elif found.state == "more":
            assert len(row) < asked.most and found.more_runs is not None and found.more_runs > 0
        else:
            assert found.half_width is not None and len(row) >= least
            assert found.state == "out of reach" or len(row) == asked.most


@settings(max_examples=60)
@given(ROWS, PRECISIONS, st.floats(1.0, 10.0))
def test_who_asks_for_less_waits_for_no_more_runs(rows, precision, wider):
    narrow, wide = (looked_at(rows, rule(min(1.0, each))) for each in (precision, wider * precision))
    order = ["reached", "more", "out of reach", "at the most"]
    for one, other in zip(narrow, wide, strict=True):
        assert one.half_width == other.half_width
        if one.state == "reached":
            assert other.state == "reached"
        if other.state == "out of reach":
            assert order.index(one.state) >= order.index("out of reach")


@settings(max_examples=60)
@given(ROWS, PRECISIONS, st.floats(1e-6, 1e6))
def test_the_unit_of_time_and_the_order_of_rows_decide_nothing(rows, precision, factor):
    found = looked_at(rows, rule(precision))
    for one, other in zip(found, looked_at(rows, rule(precision), factor), strict=True):
        assert (one.half_width is None) == (other.half_width is None)
        if one.half_width is not None and other.half_width is not None:
            assert math.isclose(one.half_width, other.half_width, rel_tol=1e-6)
    backwards = looked_at(rows[::-1], rule(precision))[::-1]
    assert [one.state for one in backwards] == [one.state for one in found]


@settings(max_examples=40)
@given(ROWS, PRECISIONS, st.integers(4, 30))
def test_a_larger_budget_ends_no_row_earlier(rows, precision, most):
    tight, loose = (looked_at(rows, rule(precision, most=each)) for each in (most, most + 20))
    for one, other in zip(tight, loose, strict=True):
        assert (one.state == "reached") == (other.state == "reached")
        if one.state == "more":
            assert other.state == "more"
