"""The steps of other tools' logs as they are published: consoles' lines, and files of their trackers. Trusts nothing.

A log is anybody's text: it is read once, in time that grows with its length, a bounded part of it, and only the numbers
that are asked for are taken from it.
"""

import math
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any, Literal

from suite.bundle.files import DamagedBundle, parse_object
from suite.bundle.imported.timers import NAMES, Names, Tool
from suite.spec.foreign import DOCUMENT_BYTES, LINE_BYTES

#: More than any run has; what is beyond is refused.
MOST_LOG_BYTES, MOST_STEPS, MOST_VALUES = 64 << 20, 1 << 16, 1 << 20
_LONGEST_NAME, _LONGEST_COUNT = 200, 18
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}m")
_FIGURE = r"([+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:[eE][+-]?\d{1,10})?)"
#: As it is, and as numpy's numbers print themselves.
_NUMBER = re.compile(rf"{_FIGURE}|np\.(?:float|int)(?:64|32)\({_FIGURE}\)", re.ASCII)
_HEADING = re.compile(r"=== (Step|Epoch) (\d{1,18})/\d{1,18} ===", re.ASCII)
_BULLET, _BAR = "\N{BULLET}", "\N{BOX DRAWINGS LIGHT VERTICAL}"
_DONE = re.compile(r"(\d{8}-\d\d:\d\d:\d\d\.\d{3}) StatsLogger INFO: .{0,80}Train step (\d{1,18})/\d{1,18} done")


@dataclass
class Step:
    """One step: its number, and the finite numbers that are read of it, by the names that the tool's trackers have."""

    number: int
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Log:
    """``form``: which of the tool's logs it is. ``notes``: what was left out of it, a line each."""

    form: Literal["console", "tracker"]
    steps: Sequence[Step]
    notes: Sequence[str]


#: What a log tells, one after the other: the number of a step, and behind it names, each with a number or null.
_Telling = Iterator[int | tuple[str, float | None]]


def read_steps(data: bytes, tool: Tool) -> Log:
    """Every step of a log, whose form is told by how it begins. Raises DamagedBundle."""
    if len(data) > MOST_LOG_BYTES:
        raise DamagedBundle(f"the log has {len(data)} bytes, more than the {MOST_LOG_BYTES} that are read")
    if b"\0" in data:
        raise DamagedBundle("the log holds zero bytes, so it is no text: name a console's output, or a tracker's JSON")
    names, head = NAMES[tool], data[:4096].lstrip()
    # an object's first name; a configuration that Python printed begins with another quotation mark
    is_tracker = head[:1] == b"{" and head[1:].lstrip()[:1] == b'"'
    tracker = _verl_tracker if tool == "verl" else _scalars
    every = _taken((tracker if is_tracker else _CONSOLES[tool])(data), names)
    steps = [step for step in every if names.whole in step.values]
    for one, other in pairwise(steps):
        _require_later(other.number, one.number)
    count = len(every) - len(steps)  # a step without a time is counted, as validations print such lines too
    are = "tells no time and is" if count == 1 else "tell no time and are"
    notes = [f"{count} step{'s' * (count != 1)} of the log {are} left out"] if count else []
    if not steps:
        detail = "".join(f" ({note})" for note in notes)
        raise DamagedBundle(f"the log holds no step of {tool}: nowhere does it tell {names.whole}{detail}")
    return Log("tracker" if is_tracker else "console", steps, notes)


def _taken(telling: _Telling, names: Names) -> list[Step]:
    """The steps with the numbers that are asked for."""
    steps: list[Step] = []
    values = 0
    for told in telling:
        if len(steps) > MOST_STEPS or values > MOST_VALUES:
            raise DamagedBundle(f"the log tells more than {MOST_STEPS} steps or {MOST_VALUES} numbers")
        if isinstance(told, int):
            steps.append(Step(told))
            continue
        name, value = told
        if steps and value is not None and len(name) <= _LONGEST_NAME and names.asks_for(name):
            if steps[-1].values.setdefault(name, value) != value:
                raise DamagedBundle(f"step {steps[-1].number} of the log tells {name!a:.80} with another value again")
            values += 1
    return steps


def _require_later(number: int, last: int) -> None:
    if number <= last:
        raise DamagedBundle(
            f"the log tells step {number} behind step {last}: two runs in one log? Import each by itself"
        )


def _lines(data: bytes) -> Iterator[str]:
    """Bytes that are no text do no harm, since other lines may be good."""
    for place, line in enumerate(data.split(b"\n"), start=1):
        if len(line) > LINE_BYTES:
            raise DamagedBundle(f"line {place} of the log is longer than {LINE_BYTES} bytes")
        yield line.decode(errors="replace")


def _verl_console(data: bytes) -> _Telling:
    """``step:N - name:number - ...``, behind whatever Ray puts before a line."""
    for line in _lines(data):
        if "step:" not in line:
            continue
        parts = _plain(line).split(" - ")
        before, found, number = parts[0].rpartition("step:")
        if not found or (before and not before[-1].isspace()) or not _is_count(number):
            continue
        yield int(number)
        for part in parts[1:]:
            name, _, text = part.rpartition(":")
            yield name.strip(), _number(text)


def _verl_tracker(data: bytes) -> _Telling:
    """The file of verl's own tracker: ``{"step": N, "data": {...}}`` a line."""
    for place, line in enumerate(_lines(data), start=1):
        if not line.strip():
            continue
        body = parse_object(line, f"line {place} of the log")
        number, values = body.get("step"), body.get("data")
        if type(number) is not int or number < 0 or type(values) is not dict:
            raise DamagedBundle(f"line {place} of the log is no step: it needs step, a number, and data, an object")
        yield number
        yield from ((name, _json_number(value)) for name, value in values.items())


def _nemo_console(data: bytes) -> _Telling:
    """Blocks below ``=== Step N/M ===``, each with a list of timers. Steps count from 1 again in each epoch."""
    printed = blocks = 0
    for line in _lines(data):
        if "===" in line and (found := _HEADING.search(_plain(line))) is not None:
            last, printed = printed, int(found[2]) if found[1] == "Step" else 0
            if found[1] == "Step":
                _require_later(printed, last)
                blocks += 1
                yield blocks
        elif _BULLET in line:
            yield _bullet(line)


def _skyrl_console(data: bytes) -> _Telling:
    """A dictionary behind ``Step N:``, a line a name, as Python prints it; two of a step are one."""
    is_open, last = False, ""
    for line in _lines(data):
        text = _plain(line)
        before, _, number = text.rpartition("Step ")
        if text.endswith(":") and _is_count(number[:-1]) and (not before or before[-1].isspace()):
            if number != last:
                yield int(number[:-1])
            is_open, last = True, number
        elif is_open:
            name, _, value = text.partition("': ")
            yield name.partition("'")[2], _number(value.rstrip("},").strip("'"))
            is_open = not text.endswith("}")


def _areal_console(data: bytes) -> _Telling:
    """Tables of names and numbers behind ``Train step N/M done.``, by whose time stamps alone a step has seconds."""
    ended: datetime | None = None
    number = -1
    for line in _lines(data):
        if _BAR in line:
            cells = [cell.strip() for cell in line.split(_BAR)]
            yield from zip(cells[1::2], map(_number, cells[2::2]), strict=False)
        elif "Train step " in line and (found := _DONE.search(_plain(line))) is not None:
            began, ended, last, number = ended, None, number, int(found[2])
            with suppress(ValueError):
                ended = datetime.strptime(found[1], "%Y%m%d-%H:%M:%S.%f")
            yield number
            if number == last + 1 and began is not None and ended is not None:
                yield NAMES["areal"].whole, (ended - began).total_seconds()


def _scalars(data: bytes) -> _Telling:
    """TensorBoard's scalars as NeMo-RL's own script writes them out: ``{"name": {"step": number}}``."""
    if len(data) > DOCUMENT_BYTES:
        raise DamagedBundle(f"the log has {len(data)} bytes of JSON, more than the {DOCUMENT_BYTES} that are read")
    found: dict[int, list[tuple[str, float | None]]] = {}
    for name, values in parse_object(data.decode(errors="replace"), "the log").items():
        if type(values) is not dict:
            raise DamagedBundle(f"{name!a:.80} of the log is no object of numbers by step")
        for text, value in values.items():
            if not _is_count(text):
                raise DamagedBundle(f"{name!a:.80} of the log has a step {text!a:.40}, which is no number")
            found.setdefault(int(text), []).append((name, _json_number(value)))
    for number in sorted(found):
        yield number
        yield from found[number]


_CONSOLES = {"verl": _verl_console, "nemo-rl": _nemo_console, "skyrl": _skyrl_console, "areal": _areal_console}


def _plain(line: str) -> str:
    return _COLOUR.sub("", line).strip()


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _LONGEST_COUNT


def _bullet(line: str) -> tuple[str, float | None]:
    """Name and number of a line of a block's list, by the names of NeMo-RL's trackers; an empty name where it has none
    of these."""
    names = NAMES["nemo-rl"]
    name, _, text = _plain(line).partition(_BULLET)[2].strip().rpartition(": ")
    seconds, _, share = text.partition(" (")
    if name == "Mean Generation Length":
        return names.response_mean[0], _number(text)
    if name == "Total step time" and text.endswith("s"):
        return names.whole, _number(text[:-1])
    if seconds.endswith("s") and share.endswith("%)"):
        return f"{names.prefix}{name}", _number(seconds[:-1])
    return "", None


def _number(text: str) -> float | None:
    """Null for what is no finite number as a log writes it."""
    found = _NUMBER.fullmatch(text.strip())
    value = float(found[1] or found[2]) if found else math.inf
    return value if math.isfinite(value) else None


def _json_number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) <= sys.float_info.max else None
