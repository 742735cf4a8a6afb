"""Names and texts of runs in Markdown, in commands, in pictures and on terminals; figures as a reader sees them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from suite.report.formatting.escape import code, drawable, fenced, inline, prose, visible
from suite.report.formatting.numbers import counted, gib, interval, moment, number, percent
from suite.stats.intervals import Interval

#: Everything that Markdown, HTML or an auto-linker gives a meaning to, and some plain letters.
HOSTILE = st.text(alphabet=st.sampled_from(list("|`\\<>&[]()!*_~#@:/$.-+=\n\r\t\x1b\u202e\u2028 awx1")), max_size=40)
PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
MARKUP = {"html_inline", "html_block", "link_open", "image", "em_open", "strong_open", "s_open", "heading_open"}


def cells_of(escaped: str) -> list[str]:
    """The rendered content of the one body row of a table that holds the text between two other cells."""
    tokens = PARSER.parse(f"| a | b | c |\n|---|---|---|\n| x | {escaped} | z |\n")
    assert [token.type for token in tokens].count("table_open") == 1
    inlines = [token for token in tokens if token.type == "inline"][3:]
    assert not {child.type for token in inlines for child in token.children or ()} & MARKUP
    return ["".join(child.content for child in token.children or ()) for token in inlines]


@pytest.mark.parametrize("escape", [inline, code, prose])
@given(text=st.one_of(HOSTILE, st.text(max_size=40)))
def test_no_text_leaves_its_table_cell_or_becomes_markup(escape, text: str) -> None:
    cells = cells_of(escape(text))
    assert len(cells) == 3
    assert (cells[0], cells[2]) == ("x", "z")


@given(text=HOSTILE)
def test_a_code_span_shows_the_text_itself(text: str) -> None:
    shown = cells_of(code(text))[1]
    assert shown.replace("\\ |", "\\|") == (visible(text) or "(empty)").replace("\\ |", "\\|")


@pytest.mark.parametrize(
    "text", ["https://evil.example", "www.evil.example", "WWW.evil.example", "a@evil.example", "@me"]
)
@pytest.mark.parametrize("escape", [inline, prose])
def test_what_an_auto_linker_would_link_is_a_code_span_and_harmless_names_stay_plain(escape, text: str) -> None:
    assert escape(text) == f"`{text}`"
    assert escape(f"see {text} now") == f"`see {text} now`"
    for name in ("1.3B", "zero2 dp2", "Intel(R) Xeon(R) CPU @ 2.20GHz", "torch 2.13.0+cpu", "no-name"):
        assert inline(name) == name


@given(text=st.text(max_size=300))
def test_visible_text_is_one_short_line_that_can_be_written(text: str) -> None:
    shown = visible(text, limit=50)
    assert len(shown) <= 50
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")


def test_controls_and_reversed_text_are_made_visible() -> None:
    assert visible("a\x1b[31mb\u202ec\ud800d") == "a\ufffd[31mb\ufffdc\ufffdd"


@given(lines=st.lists(st.text(alphabet="`~ab \\", max_size=12), max_size=4))
def test_nothing_ends_a_fenced_block_early(lines: list[str]) -> None:
    tokens = PARSER.parse(fenced(lines, "sh") + "\n\nafter\n")
    assert [token.type for token in tokens] == ["fence", "paragraph_open", "inline", "paragraph_close"]


@given(text=st.text(max_size=60))
def test_what_is_drawn_is_printable_ascii_without_formulas(text: str) -> None:
    shown = drawable(text)
    assert len(shown) <= 34
    assert all(" " <= char <= "~" for char in shown)
    assert "$" not in shown


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
