"""Figures as a reader sees them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.report.formatting.numbers import counted, gib, interval, moment, number, percent
from suite.stats.intervals import Interval


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (number(None), "-"),
        (number(0.0), "0"),
        (number(1234.5), "1,234"),
        (number(0.05123), "0.0512"),
        (number(999.6), "1,000"),
        (number(2e-6), "2.00e-06"),
        (interval(None), "-"),
        (interval(Interval(12.344, 12.311, 12.377)), "12.34 [12.31, 12.38]"),
        (interval(Interval(12.3, None, None)), "12.3"),
        (interval(Interval(16.3, 0.148, 2064.0)), "16.3 [0.148, 2,064]"),
        (interval(Interval(0.9, 0.9, 0.9)), "0.900 [0.900, 0.900]"),
        *((percent(ratio), text) for ratio, text in ((None, "-"), (0.0, "0"), (0.4219, "42"), (0.0048, "0.48"))),
        (moment(1_790_000_000.0), "2026-09-21 14:13 UTC"),
        (moment(None), "-"),
        (moment(1e30), "-"),
        (counted(1, "run"), "1 run"),
        (counted(1000, "run"), "1,000 runs"),
        (gib(1 << 30), "1.00"),
    ],
)
def test_figures_have_the_digits_that_they_bear_and_words_follow_their_numbers(shown: str, text: str) -> None:
    assert shown == text


@given(value=st.floats(min_value=1e-9, max_value=1e12))
def test_a_number_is_within_half_a_percent_of_its_value(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=5.01e-3)


@given(value=st.floats(min_value=1e-3, max_value=1e6), below=st.floats(0, 0.99), above=st.floats(0, 9))
def test_rounding_never_puts_a_value_outside_its_interval(value: float, below: float, above: float) -> None:
    shown = interval(Interval(value, value * (1 - below), value * (1 + above)))
    middle, low, high = (
        float(part.replace(",", "")) for part in re.fullmatch(r"(\S+) \[(\S+), (\S+)\]", shown).groups()
    )
    assert low <= middle <= high
