"""Parting rank 0's output into events and log."""

import json

from hypothesis import given
from hypothesis import strategies as st

from suite.launch.stream import EVENT_PREFIX, LONGEST_EVENT_BYTES, EventStream, parse_event

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
