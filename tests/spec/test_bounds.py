"""Numbers beyond any machine: refused where they are read, whatever holds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.cli.options.reading import check_numbers, rank_counts
from suite.planner.ask import device_range
from suite.spec import typed
from suite.spec.base import UsageError
from suite.spec.bounds import MOST, MOST_BYTES, MOST_SECONDS, first_beyond

MANY = "9" * 400


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((typed.seconds, text) for text in (f"{MANY}h", "9" * 5000, "1000000h", "1" * 30 + "h", f"0.{MANY}h")),
        *((typed.size, text) for text in (f"{MANY}g", "9" * 5000, "99999999t")),
        *((device_range, text) for text in ("9" * 5000, "9" * 5000 + "..1", "1.." + "9" * 5000)),
        *((lambda text: rank_counts([text], most=8), text) for text in ("9" * 5000, "1048577")),
    ],
)
def test_no_duration_no_size_no_range_and_no_number_of_ranks_overflows(read: Callable, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert len(str(caught.value)) < 200 or read is device_range


def test_what_machines_have_is_read_as_before() -> None:
    assert typed.seconds("87600h") == MOST_SECONDS and typed.size("1048576t") == MOST_BYTES
    assert (typed.seconds("1h30m"), typed.size("1.5g"), typed.share("--margin", "2.5%")) == (5400, 3 << 29, 0.025)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1e300, -1e300, 10**400, MOST + 1, [1, 10**400]])
def test_no_numeric_option_of_any_command_overflows(value: Any) -> None:
    with pytest.raises(UsageError, match="--most-repeats is a number up to 281,474,976,710,656, not '") as caught:
        check_numbers({"price": 2.5, "most_repeats": value, "names": ["a"], "where": None, "switch": True})
    assert len(str(caught.value)) < 200


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(-5, 5),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_small_data_has_no_number_beyond(value: Any) -> None:
    assert first_beyond(value) is None


def test_the_path_to_a_number_is_told() -> None:
    assert first_beyond({"workload": {"critic": {"hidden": 10**400}}}) == ("workload", "critic", "hidden")
    assert first_beyond({"lengths": [1, 2, float("inf")]}) == ("lengths", "2")
    deep: Any = 1e300
    for _ in range(5000):
        deep = [deep]
    assert first_beyond(deep) is not None
