from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.report.formatting.numbers import counted, gib, interval, listed, moment, number, percent
from suite.stats.intervals import Interval


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0"),
        (1234.5, "1,234"),
        (12.34, "12.3"),
        (0.05123, "0.0512"),
        (999.6, "1,000"),
        (2e-6, "2.00e-06"),
    ],
)
def test_a_number_has_three_significant_digits_and_all_its_whole_ones(value: float | None, text: str) -> None:
    assert number(value) == text


@given(value=st.floats(min_value=1e-9, max_value=1e12))
def test_a_number_is_within_half_a_percent_of_its_value(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=5.01e-3)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (None, "-"),
        (Interval(12.344, 12.311, 12.377), "12.34 [12.31, 12.38]"),
        (Interval(102.7, 100.6, 104.8), "102.7 [100.6, 104.8]"),
        (Interval(12.3, None, None), "12.3"),
        (Interval(16.3, 0.148, 2064.0), "16.3 [0.148, 2,064]"),
        (Interval(0.9, 0.9, 0.9), "0.900 [0.900, 0.900]"),
    ],
)
def test_an_interval_shows_the_digits_that_its_width_bears(estimate: Interval | None, text: str) -> None:
    assert interval(estimate) == text


@given(value=st.floats(min_value=1e-3, max_value=1e6), below=st.floats(0, 0.99), above=st.floats(0, 9))
def test_rounding_never_puts_a_value_outside_its_interval(value: float, below: float, above: float) -> None:
    shown = interval(Interval(value, value * (1 - below), value * (1 + above)))
    middle, low, high = (
        float(part.replace(",", "")) for part in re.fullmatch(r"(\S+) \[(\S+), (\S+)\]", shown).groups()
    )
    assert low <= middle <= high


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(None, "-"), (0.0, "0"), (0.4219, "42"), (0.0549, "5.5"), (0.05, "5.0"), (0.0963, "9.6"), (0.0048, "0.48")],
)
def test_percent_keeps_two_digits(ratio: float | None, text: str) -> None:
    assert percent(ratio) == text


def test_times_are_utc_to_the_minute_and_impossible_ones_are_unknown() -> None:
    assert moment(1_790_000_000.0) == "2026-09-21 14:13 UTC"
    assert moment(None) == moment(1e30) == "-"


def test_words_follow_their_numbers() -> None:
    assert counted(1, "run") == "1 run"
    assert counted(1000, "run") == "1,000 runs"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert gib(1 << 30) == "1.00"
