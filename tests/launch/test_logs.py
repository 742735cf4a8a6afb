"""Rank 0's output is parted into events and log; logs are read in bounds and shown plainly."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.launch.stream import (
    EVENT_PREFIX,
    LONGEST_EVENT_BYTES,
    LONGEST_LINE,
    MOST_BYTES,
    EventStream,
    parse_event,
    read_on,
    shown,
)
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


EVENTS = st.fixed_dictionaries(
    {"kind": st.text(max_size=8), "seconds": st.floats(allow_nan=False, allow_infinity=False), "note": st.text()}
)
ORDINARY = (
    st.binary(max_size=40).map(lambda data: data.replace(b"\n", b"")).filter(lambda line: parse_event(line) is None)
)
BROKEN = st.sampled_from([b"{", b"[]", b"5", b'{"kind": 1}', b'{"no": "kind"}', b"\xff", b"[" * 5000, b"", b"NaN"]).map(
    lambda text: EVENT_PREFIX + text
)
CLOSE_CALLS = st.sampled_from(
    [b"", b":", b"::suite::", b"::suite", b" ::suite:: {}", b"::suite::{}", b'progress ::suite:: {"kind": "end"}']
)


def part(data: bytes, sizes: list[int]) -> tuple[bytes, list[dict]]:
    """Feed ``data`` in chunks of ``sizes``, the rest in one."""
    log, events = bytearray(), []
    stream = EventStream(log.extend, events.append)
    for size in sizes:
        stream.feed(data[:size])
        data = data[size:]
    stream.feed(data)
    stream.close()
    return bytes(log), events


@given(
    st.lists(st.one_of(EVENTS, ORDINARY, BROKEN, CLOSE_CALLS)), st.lists(st.integers(1, 30), max_size=60), st.booleans()
)
def test_every_event_is_delivered_and_every_other_byte_is_kept_however_the_output_is_cut(lines, sizes, ends_in_newline):
    whole = [(EVENT_PREFIX + json.dumps(line).encode() if isinstance(line, dict) else line) + b"\n" for line in lines]
    if whole and not ends_in_newline:
        whole[-1] = whole[-1][:-1]
    log, events = part(b"".join(whole), sizes)
    assert events == [line for line in lines if isinstance(line, dict)]
    assert log == b"".join(text for text, line in zip(whole, lines, strict=True) if not isinstance(line, dict))


def test_an_endless_line_behind_the_prefix_is_log_and_is_not_held_in_memory():
    log, events = bytearray(), []
    stream = EventStream(log.extend, events.append)
    chunk = b"x" * 65536
    stream.feed(EVENT_PREFIX)
    for index in range(64):
        stream.feed(chunk)
        assert len(EVENT_PREFIX) + (index + 1) * len(chunk) - len(log) <= LONGEST_EVENT_BYTES
    stream.feed(b"\n" + EVENT_PREFIX + b'{"kind": "end"}\n')
    assert events == [{"kind": "end"}]
    assert bytes(log) == EVENT_PREFIX + chunk * 64 + b"\n"
