# ruff: noqa: E501 - inputs are as long as they are
"""Valid inputs made slightly or wildly wrong, each by a generator that a seed makes the same everywhere."""

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

#: with those beside each: the edges of bytes, of what a float holds exactly, and of words of a machine
_WHOLE = (0, 3, 7, *(1 << power for power in (6, 8, 16, 20, 24, 31, 32, 48, 53, 63, 64)))
_HUGE = (10**18, 10**30, 10**308, 10**400, -(10**400), 10**4200)
_PARTS = (-0.0, 0.5, 0.1, 1e-9, 1e-300, 5e-324, 1e300, 1.7976931348623157e308, -1e308, 1e17, 1e16 + 2)
_WORDS = (
    "a 0 1 -1 1e400 nan inf null true 1e9 0x10 1_000 ../../etc/passwd /dev/zero /dev/stdin list:/etc/passwd ~root $(id) "
    "`id` ${HOME} %s%n {0} =cmd() <script> | \\ ' \""
)
_TEXTS = ("", " ", "\n", "\0", "\x1b[2J", "\u202e", "\ufeff", "\ud800", "\U0001f600", "é" * 100, "a" * 10_000)
_NESTS: tuple[Any, ...] = (
    *([], {}, [None], [[]], {"": None}, {"kind": "constant"}),
    *({"a": {"a": {"a": {}}}}, [0] * 1000, [[[[[[[[[[]]]]]]]]]]),
)
#: Values that broke programs before: of every type, at every edge.
VALUES: tuple[Any, ...] = (
    *(None, True, False, float("nan"), float("inf"), float("-inf"), *_HUGE, *_PARTS),
    *(sign * whole + more for whole in _WHOLE for sign in (1, -1) for more in (-1, 0, 1)),
    *("9" * 400, "9" * 5000, *_WORDS.split(), *_TEXTS, *_NESTS),
)
#: characters that end, quote or hide
STRANGE = (0, 9, 10, 13, 27, 34, 44, 47, 58, 92, 124, 127, 160, 0x202E, 0xD800, 0xFEFF, 0x1F600)
_BYTES = "00 ff feff eda080 efbbbf 1b5b324a 0a 0d0a 22 7b 5b 2c 7c 09 2d"
BYTES = (*map(bytes.fromhex, _BYTES.split()), b"9" * 400)


def json_bytes(value: Any) -> bytes:
    """Its JSON with whatever no JSON should hold: NaN, infinity, halves of characters, numbers of thousands of digits."""
    return json.dumps(value).encode()


def tree(value: Any, random: Random, most: int = 4) -> Any:
    """JSON-like data with a few places changed: replaced, left out, doubled, renamed, swapped with another."""
    changed = [copy.deepcopy(value)]
    for _ in range(random.randint(1, most)):
        places = _places(changed)
        holder, key = random.choice(places)
        _change(holder, key, random, places)
    return changed[0]


def _places(whole: list[Any]) -> list[tuple[Any, Any]]:
    """Every holder with the name or position of what it holds."""
    found: list[tuple[Any, Any]] = []
    waiting: list[Any] = [whole]
    while waiting and len(found) < 20_000:
        holder = waiting.pop()
        for key in holder if isinstance(holder, dict) else range(len(holder)):
            found.append((holder, key))
            if isinstance(holder[key], (dict, list)):
                waiting.append(holder[key])
    return found


def _change(holder: Any, key: Any, random: Random, places: list[tuple[Any, Any]]) -> None:
    kind = random.random()
    if kind < 0.45:
        holder[key] = copy.deepcopy(random.choice(VALUES))
    elif kind < 0.6:
        holder[key] = _near(holder[key], random)
    elif kind < 0.72 and isinstance(holder, dict):
        del holder[key]
    elif kind < 0.8:
        other, name = random.choice(places)
        if len(str(other.get(name) if isinstance(other, dict) else "")) < 10_000 and _has(other, name):
            holder[key] = copy.deepcopy(other[name])
    elif kind < 0.88 and isinstance(holder, dict):
        name = random.choice(("", "schema", "kind", "name", "extra", "__class__", "\x1b[2J", "a" * 300))
        holder[name] = random.choice(VALUES)
    elif kind < 0.94 and isinstance(holder, list) and len(holder) < 5000:
        holder.insert(key, copy.deepcopy(holder[key]))
    elif isinstance(holder, list) and len(holder) > 1:
        del holder[key]
    else:
        holder[key] = [holder[key]]


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else 0 <= key < len(holder)


def _near(value: Any, random: Random) -> Any:
    """A value of the same type, a little off."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = (value + 1, value - 1, -value, value * 2, value * 10**6, value * 10**12, value // 2)
        return random.choice((*near, float(max(-(10**300), min(value, 10**300)))))
    if isinstance(value, float):
        return random.choice((-value, value * 1e9, value * 1e-9, value + 1, str(value), 0.0))
    if isinstance(value, str):
        return text(value, random)
    return [value] if random.random() < 0.5 else {"a": value}


def text(value: str, random: Random) -> str:
    """A text with a few pieces changed."""
    for _ in range(random.randint(1, 3)):
        at, end = sorted((random.randint(0, len(value)), random.randint(0, len(value))))
        end = min(end, at + 20)
        piece, strange = str(random.choice(VALUES))[:500], chr(random.choice(STRANGE))
        before, middle, after = value[:at], value[at:end], value[end:]
        put_in = random.choice(("", piece, piece + middle, strange + middle, middle * random.choice((2, 3, 50))))
        turned = value.upper() if random.random() < 0.5 else value[::-1]
        value = turned if random.random() < 0.15 else before + put_in + after
    return value


def raw(data: bytes, random: Random) -> bytes:
    """Bytes with a few pieces changed, cut or doubled."""
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(data))
        end = min(len(data), at + random.choice((1, 1, 2, 8, 40, 400)))
        kind = random.random()
        if kind < 0.25:
            data = data[:at] + bytes(random.randrange(256) for _ in range(random.randint(1, 4))) + data[end:]
        elif kind < 0.5:
            data = data[:at] + random.choice(BYTES) + data[at:]
        elif kind < 0.65:
            data = data[:at] + data[end:]
        elif kind < 0.8:
            data = data[:at] + data[at:end] * random.choice((2, 3, 100)) + data[end:]
        elif kind < 0.9:
            data = data[:at]
        else:
            other = random.randint(0, len(data))
            data = data[:at] + data[other : other + 40] + data[end:]
    return data


def lines(data: bytes, random: Random) -> bytes:
    """Lines left out, doubled, swapped, cut; or bytes changed in them."""
    whole = data.splitlines(keepends=True)
    if random.random() < 0.4 or len(whole) < 2:
        return raw(data, random)
    at, other = random.randrange(len(whole)), random.randrange(len(whole))
    kind = random.random()
    if kind < 0.25:
        del whole[at]
    elif kind < 0.5:
        whole.insert(at, whole[other])
    elif kind < 0.75:
        whole[at], whole[other] = whole[other], whole[at]
    else:
        whole[at] = raw(whole[at], random)
    return b"".join(whole)


def json_document(
    seeds: Callable[[], list[Any]], after: Callable[[Any, Random], Any] = lambda body, random: body
) -> Callable[[Random], bytes]:
    """A generator of documents from valid ones; ``after`` may mend what would hide the change, such as a hash."""

    def make(random: Random) -> bytes:
        seed = random.choice(seeds())
        if random.random() < 0.12:
            return raw(json_bytes(seed), random)
        return json_bytes(after(tree(seed, random), random))

    return make


def line_document(*seeds: bytes) -> Callable[[Random], bytes]:
    """As ``json_document``, of texts."""
    return lambda random: lines(random.choice(seeds), random)
