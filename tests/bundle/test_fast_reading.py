"""Reading events fast gives what reading them one by one with every check gives, damage and its message too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.bundle.amounts import LEAST_SECONDS, MOST_COUNT, MOST_SECONDS
from suite.bundle.event_columns import USUAL, column_of
from suite.bundle.event_fields import FIELDS, is_moment
from suite.bundle.files import DamagedBundle, parse_object
from suite.bundle.json_lines import objects, plain_objects
from suite.bundle.record import Counts
from suite.spec.foreign import LINE_BYTES

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=True)
    | st.text(alphabet='ab:"\\{}[], \t\u00b5\ud800', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('a":\\ {', max_size=3), inner, max_size=3),
    max_leaves=8,
)
_LINES = st.lists(
    st.builds(
        lambda value, ascii, tight: json.dumps(value, ensure_ascii=ascii, separators=(",", ":") if tight else None),
        st.dictionaries(st.text("abc:", max_size=3), _VALUES, max_size=5) | _VALUES,
        st.booleans(),
        st.booleans(),
    ),
    max_size=4,
)


def slowly(data: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """Line by line, without a short cut."""
    found, notes = [], []
    for number, line in enumerate(data.split(b"\n"), 1):
        if number == data.count(b"\n") + 1:
            if line:
                notes.append(f"file line {number} was cut short and left out")
            break
        try:
            found.append(parse_object(line.decode(), f"file line {number}"))
        except UnicodeDecodeError as error:
            raise DamagedBundle(f"file line {number} is not UTF-8 text") from error
    return found, notes


def outcome(read: Any, data: bytes) -> Any:
    try:
        return repr(read(data))  # 1, 1.0 and True are equal, their texts are not
    except DamagedBundle as error:
        return f"damaged: {error}"


def quickly(data: bytes) -> tuple[list[dict[str, Any]], list[str]]:
    """All at once where that can be, else line by line."""
    notes: list[str] = []
    found = plain_objects(data)
    return list(objects(data, "file", notes)) if found is None else found, notes


@given(_LINES, st.data())
def test_both_ways_agree_whatever_the_file_holds(lines: list[str], data: st.DataObject) -> None:
    content = bytearray("".join(f"{line}\n" for line in lines).encode(errors="surrogatepass"))
    for _ in range(data.draw(st.integers(0, 3)) if content else 0):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 2))] = data.draw(st.sampled_from(_PIECES))
    assert outcome(quickly, bytes(content)) == outcome(slowly, bytes(content))


_PIECES = [*(bytes([one]) for one in b'"\n :{}\\,\t\xff'), *(b"", b'":', b'"a":', b'{"a":1}', b"NaN", b"1e999")]


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
        b'{"a":-Infinity}',
        b'{"a":1}{"b":2}',
        b'{"a":1},',
        b"[1]",
        b"",
        b'{"a":1',
        b'{"a":' + b"1" * 5000 + b"}",
        b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_what_is_no_object_with_each_name_once_is_damage(line: bytes) -> None:
    data = b'{"first":1}\n' + line + b'\n{"last":1}\n'
    assert outcome(quickly, data) == outcome(slowly, data)
    assert outcome(quickly, data).startswith("damaged: file line 2")


def test_an_object_over_two_lines_is_damage() -> None:
    assert outcome(quickly, b'{"a":1,\n"b":2}\n').startswith("damaged: file line 1")


def test_a_line_may_be_so_long_and_no_longer() -> None:
    longest = b'{"a":"' + b"x" * (LINE_BYTES - 9) + b'"}\n'
    assert len(longest) == LINE_BYTES
    assert len(quickly(longest)[0]) == 1
    for longer in (longest.replace(b"x", b"xx", 1), b"x" * (LINE_BYTES + 1)):
        assert outcome(quickly, longer) == f"damaged: file line 1 is longer than {LINE_BYTES} bytes"


def test_what_the_suite_writes_is_read_at_once() -> None:
    lines = [
        {"kind": "phase", "seconds": 0.25, "iteration": 3},
        {"counts": {"samples": 1}, "stats": {"loss": None}},
        {"facts": {"notes": ["\u00b5 and \\"], "long": ["x" * 300, {"a": {"b": 1}}]}},
    ]
    for separators in (None, (",", ":")):
        data = "".join(json.dumps(line, separators=separators) + "\n" for line in lines).encode()
        assert plain_objects(data) == lines


_CHECKS = {check for kinds in FIELDS.values() for kind in kinds.values() for _, check in kind.fields}
_RIGHT = sorted({is_right for is_right, _ in _CHECKS} | {is_moment}, key=lambda check: check.__qualname__)
_WORDS = st.sampled_from(("ok", "failed", "generate", "train", "oom_host", "setup", "nothing", ""))
_EDGES = (0, 1, -1, MOST_COUNT, MOST_COUNT + 1, LEAST_SECONDS, LEAST_SECONDS / 2, MOST_SECONDS, 2 * MOST_SECONDS, 1e11)
_NUMBERS = st.sampled_from(_EDGES) | st.integers(-3, 3) | st.floats(allow_nan=False)
_PLAIN = st.none() | st.booleans() | _NUMBERS | _WORDS
_COUNTS = st.fixed_dictionaries({name: st.integers(1, 3) for name in Counts.model_fields}) | st.fixed_dictionaries(
    {}, optional=dict.fromkeys(Counts.model_fields, _PLAIN)
)
_COLUMN = _PLAIN | _COUNTS | st.lists(_PLAIN, max_size=2)


@settings(max_examples=30)
@pytest.mark.parametrize("is_right", _RIGHT, ids=lambda check: check.__qualname__)
@given(values=st.lists(_COUNTS, min_size=1) | st.lists(_NUMBERS, min_size=1) | st.lists(_COLUMN, min_size=1))
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
