"""Logs of others are read in bounds and shown plainly."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.launch.stream import LONGEST_LINE, MOST_BYTES, read_on, shown
from tests.launch.ranks import STERN, run


def test_what_silent_ranks_print_is_no_sign_of_life_and_is_told(tmp_path: Path) -> None:
    script = 'while True:\n    print("still waiting", file=sys.stderr, flush=True)\n    time.sleep(0.1)'
    ran = run(tmp_path, f'event("phase", phase="train", iteration=0)\n{script}', patience=STERN, passing={"phase": 200})
    assert ran.outcome.failure.kind == "hang"
    assert ran.outcome.failure.evidence[1].startswith("rank 0 wrote to its log ")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"plain text\n", "plain text"),
        (b"\x1b[31;1mred\x1b[0m and \x1b]0;title\x07done\r\n", "red and done"),
        (b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        (b"  10%\r 50%\r100%\r\n", "100%"),
        (b"a\tb", "a       b"),
        ("right\u202eleft\u2066".encode(), "right\\u202eleft\\u2066"),
        (b"\x07\x08\xff\x9b31m", "\\x07\\x08\ufffd\ufffd31m"),
        (b"\x1b[" + b"9" * 100 + b"m", "9" * 100 + "m"),
    ],
)
def test_a_line_is_shown_without_what_moves_or_colours(line: bytes, text: str) -> None:
    assert shown(line) == text


@given(st.binary(max_size=300))
def test_whatever_a_line_holds_it_is_printable_and_not_endless(line: bytes) -> None:
    assert shown(line).isprintable()
    assert len(shown(b"x" * (1 << 20) + line)) == LONGEST_LINE + 3


def test_the_last_lines_that_are_no_events_and_then_what_comes(tmp_path: Path) -> None:
    path, place = tmp_path / "rank-0.log", {}
    assert read_on(path, place, 2) == []
    path.write_bytes(b"1\n2\n0: ::suite:: {}\n3\n::suite:: {}\n")
    assert read_on(path, place, 2) == [b"2\n", b"3\n"]
    for more, found in ((b"4\n::suite:: {}\nhal", b"4\n"), (b"f\n", b"half\n")):
        with path.open("ab") as file:
            file.write(more)
        assert read_on(path, place, 2) == [found]
    path.write_bytes(b"new\n")
    assert read_on(path, place, 2) == [b"new\n"], "a file that became shorter is another one"


def test_no_more_than_a_mebibyte_is_read_at_once(tmp_path: Path) -> None:
    path, place = tmp_path / "log", {}
    path.write_bytes(b"x" * (3 * MOST_BYTES) + b"\nlast\n")
    assert read_on(path, place, 5) == [b"last\n"]
    place[str(path)] = 0
    found = read_on(path, place, 5)
    assert found[-1] == b"last\n" and sum(map(len, found)) <= MOST_BYTES
    assert place[str(path)] == path.stat().st_size
