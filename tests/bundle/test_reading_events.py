"""Whatever bytes a file of events has: events, or damage with its line."""

import json
from contextlib import suppress
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.bundle import files
from suite.bundle.events import events_in
from suite.bundle.files import DamagedBundle
from suite.bundle.parts import LEAST_SECONDS, MOST_COUNT, MOST_SECONDS
from suite.spec.foreign import LINE_BYTES
from tests.synthetic import as_lines, rank_events, synthetic_manifest

TOLD: dict[str, Any] = {"details": {"train/forward": 0.5}, "rollout": {"idle_slot_seconds": 1.0}, "staleness": 1}
EVENTS = rank_events(synthetic_manifest(iterations=1, warmup=1), 0, lambda *_: 1.0, **TOLD)
MORE = {
    "noise": {"seconds": 2.0, "cpu_wait_seconds": None, "host": {"cpus": 2, "load": 0.0}},
    "device": {"samples": 3},
    "asynchronous": {"publication": 1, "staleness": {}, "roles": {"generation": {"ranks": 1, "busy_seconds": 0.5}}},
    "later": {"a": 1},
}


def outcome(data: bytes) -> Any:
    """Events as a text, or the one line of the damage."""
    try:
        return repr(events_in(data, "file", 0, []))
    except DamagedBundle as error:
        message = str(error)
        assert message.startswith("file line ") and len(message) < 400 and "\n" not in message
        return f"damaged: {message}"


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.sampled_from((0, 1, MOST_COUNT, MOST_COUNT + 1, LEAST_SECONDS, LEAST_SECONDS / 2, MOST_SECONDS, 1e11, 1e-300))
    | st.floats(allow_nan=True)
    | st.sampled_from(("ok", "train", "setup", "trainer", "oom_host"))
    | st.text(alphabet='ab:"\\{}[], \t\u00b5\ud800', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a":\\ {', max_size=3), inner, max_size=3),
    max_leaves=8,
)
_NAMES = sorted({name for event in EVENTS for name in event} | {"source"} | set(MORE))


@settings(max_examples=100)
@given(st.data())
def test_whatever_an_event_holds_it_is_read_or_damage(data: st.DataObject) -> None:
    events = deepcopy(EVENTS)
    for _ in range(data.draw(st.integers(1, 2))):
        event = data.draw(st.sampled_from(events))
        inner = [value for value in event.values() if type(value) is dict]
        place = data.draw(st.sampled_from([event, event, *inner]))
        place[data.draw(st.sampled_from(sorted(set(place) | set(_NAMES))))] = data.draw(_VALUES)
    outcome("".join(f"{json.dumps(event)}\n" for event in events).encode(errors="surrogatepass"))


@settings(max_examples=200)
@given(_VALUES, st.integers(0, files.DEPTH + 2))
def test_facts_that_pass_can_be_stored_and_are_then_the_same(value: Any, depth: int) -> None:
    for _ in range(depth):
        value = {"a": [1, value]}
    with suppress(DamagedBundle):
        files.check_tree(value, "facts")
        assert json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False).encode()) == value
        assert 2 * depth <= files.DEPTH


_PIECES = [*(bytes([one]) for one in b'"\n :{}\\,\t\xff'), *(b"", b'":', b'"a":', b'{"a":1}', b"NaN", b"1e999")]


@settings(max_examples=100)
@given(st.data())
def test_whatever_bytes_are_changed_they_are_read_or_damage(data: st.DataObject) -> None:
    content = bytearray(as_lines(EVENTS).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(_PIECES))
    outcome(bytes(content))


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":1,"a":2}',
        b'{"a" :1,"a":2}',
        b'{"a":1,"b":{"c":1,"c":2}}',
        b'{"a":1,"b":[{"c":1},{"c":1,"c":2}]}',
        b'{"a":1,"\\u0061":2}',
        b'{"a":": b","a":2}',
        b'{"a" :": b","a":2}',
        b'{"a":NaN}',
        b'{"a":1}{"b":2}',
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
@pytest.mark.parametrize("kind", ["phase", "iteration"])
def test_what_is_no_object_with_each_name_once_is_damage(line: bytes, kind: str) -> None:
    """Also within an event in which all else is right."""
    whole = json.dumps(next(event for event in EVENTS if event["kind"] == kind)).encode()
    for spoilt in (line, whole.replace(b"{", line[:-1] + b",", 1)):
        lines = as_lines(EVENTS).encode().split(b"\n")
        assert outcome(b"\n".join([*lines[:5], spoilt, *lines[6:]])).startswith("damaged: file line 6")


def test_an_object_over_two_lines_is_damage() -> None:
    assert outcome(as_lines(EVENTS).replace(', "time"', ',\n"time"', 1).encode()).startswith("damaged: file line 1")


def test_a_line_may_be_so_long_and_no_longer() -> None:
    first = json.dumps({**EVENTS[0], "later": ""})
    longest = first.replace('"later": "', '"later": "' + "x" * (LINE_BYTES - len(first) - 1)) + "\n"
    assert len(longest) == LINE_BYTES and len(events_in(longest.encode(), "file", 0, [])) == 1
    for longer in (longest.replace("x", "xx", 1), "x" * (LINE_BYTES + 1)):
        assert outcome(longer.encode()) == f"damaged: file line 1 is longer than {LINE_BYTES} bytes"


def test_what_the_suite_writes_is_read_however_it_is_spaced() -> None:
    full = [event | (MORE if "stats" in event else {"later": "a backslash \\ and \u00b5"}) for event in EVENTS]
    for events in (EVENTS, full):
        for separators in (None, (",", ":")):
            data = "".join(json.dumps(event, separators=separators) + "\n" for event in events).encode()
            assert len(events_in(data, "file", 0, [])) == len(events)
