"""Tables of plain text at the width of a terminal."""

import pytest

from suite.planner.grid import Column, grid_lines

NAMES = [f"{n} split 16+{n} async1, tp2 dp8 sp dist-opt packed, vllm 8 x tp{n}" for n in range(1, 4)]
LIMITS = ["generation: latency of launches and collectives", "generation: keys and values read", "none"]
RANGES = ["44.8 to 65.5", "47.4 to 69.2", "71.1 to 104"]


def table(most: int | None) -> list[str]:
    columns = [
        Column("arrangement", NAMES, left=True),
        Column("gen s", ["54.0", "41.2", "41.2"], 6),
        Column("devices", ["24", "32", "48"]),
        Column("range", RANGES, 1),
        Column("limit", LIMITS, left=True),
    ]
    return list(grid_lines(columns, most))


@pytest.mark.parametrize("most", range(60, 140, 7))
def test_no_line_is_longer_and_no_word_is_lost(most: int) -> None:
    lines = table(most)
    assert max(map(len, lines)) <= most
    words = " ".join(lines).split()
    for text in (*NAMES, *LIMITS):
        assert all(words.count(word) >= text.split().count(word) for word in text.split())


def test_both_outer_columns_are_broken_before_a_range_is_left_out() -> None:
    lines = table(70)
    assert all(any(text in line for line in lines) for text in RANGES)
    assert "gen s" in table(80)[0] and "gen s" not in lines[0], "what matters least goes first"
    assert len(lines) <= 1 + 3 * len(NAMES)


def test_a_last_column_of_figures_is_whole_and_to_the_right() -> None:
    lines = list(grid_lines([Column("a", ["one two three four five six"], left=True), Column("n", ["1,234,567"])], 30))
    assert lines[0].endswith("        n") and lines[1].endswith(" 1,234,567") and max(map(len, lines)) <= 30
