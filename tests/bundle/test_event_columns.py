"""A column of values is right where each of its values is."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.bundle.amounts import LEAST_SECONDS, MOST_COUNT, MOST_SECONDS
from suite.bundle.event_columns import USUAL, column_of
from suite.bundle.event_fields import FIELDS, is_moment
from suite.bundle.record import Counts

_CHECKS = {check for kinds in FIELDS.values() for kind in kinds.values() for _, check in kind.fields}
_RIGHT = sorted({is_right for is_right, _ in _CHECKS} | {is_moment}, key=lambda check: check.__qualname__)
_WORDS = st.sampled_from(("ok", "failed", "generate", "train", "oom_host", "setup", "nothing", ""))
_EDGES = (0, 1, -1, MOST_COUNT, MOST_COUNT + 1, LEAST_SECONDS, LEAST_SECONDS / 2, MOST_SECONDS, 2 * MOST_SECONDS, 1e11)
_NUMBERS = st.sampled_from(_EDGES) | st.integers(-3, 3) | st.floats(allow_nan=False)
_PLAIN = st.none() | st.booleans() | _NUMBERS | _WORDS
_COUNTS = st.fixed_dictionaries({name: st.integers(1, 3) for name in Counts.model_fields}) | st.fixed_dictionaries(
    {}, optional=dict.fromkeys(Counts.model_fields, _PLAIN)
)
_VALUES = _PLAIN | _COUNTS | st.lists(_PLAIN, max_size=2)


@settings(max_examples=30)
@pytest.mark.parametrize("is_right", _RIGHT, ids=lambda check: check.__qualname__)
@given(values=st.lists(_COUNTS, min_size=1) | st.lists(_NUMBERS, min_size=1) | st.lists(_VALUES, min_size=1))
def test_a_column_is_checked_as_its_values_are(is_right: Any, values: list[Any]) -> None:
    try:
        together = bool(column_of(is_right)(values))
    except (KeyError, TypeError):
        together = False
    assert together == all(map(is_right, values))


@pytest.mark.parametrize("more", [{}, {"device": {}}, {"other": 1}], ids=str)
@pytest.mark.parametrize("less", ["", "calls", "phase"])
def test_events_of_other_fields_are_not_usual(more: dict[str, Any], less: str) -> None:
    event = {"kind": "heartbeat", "rank": 0, "time": 1.0, "seq": 0, "iteration": None, "phase": "train", "calls": 3}
    other = {name: value for name, value in event.items() if name != less} | more
    try:
        found = USUAL["rank"]["heartbeat"].are_usual([event, other])
    except KeyError:
        found = False
    assert found == (other == event)
