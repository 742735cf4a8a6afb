"""The steps of other tools' logs as they are published: consoles' lines, and files of their trackers. Trusts nothing.

A log is anybody's text: it is read once, in time that grows with its length, a bounded part of it, and only the numbers
that are asked for are taken from it.
"""

import math
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from suite.bundle.files import DamagedBundle, parse_object
from suite.bundle.imported.timers import NAMES, Tool
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


class Log:
    """Steps as a log tells them, one after the other. ``form``: which of the tool's logs it is."""

    def __init__(self, tool: Tool, form: Literal["console", "tracker"]) -> None:
        self._names, self.form = NAMES[tool], form
        self._values = self._untimed = 0
        self.current: Step | None = None
        self.steps: list[Step] = []

    def begin(self, number: int) -> None:
        """What follows is of this step, and nothing more of the one before."""
        self.end()
        self.current = Step(number)

    def add(self, name: str, value: float | None) -> None:
        """Keep a number of the current step, where it is one and is asked for."""
        step = self.current
        if step is None or value is None or not self._names.asks_for(name) or len(name) > _LONGEST_NAME:
            return
        if step.values.setdefault(name, value) != value:
            raise DamagedBundle(f"step {step.number} of the log tells {ascii(name)[:80]} with another value again")
        self._values += 1
        if self._values > MOST_VALUES:
            raise DamagedBundle(f"the log tells more than {MOST_VALUES} numbers")

    def add_seconds(self, seconds: float) -> None:
        self.add(self._names.whole, seconds)

    def end(self) -> None:
        """A step without a time is counted, as validations print such lines too."""
        step, self.current = self.current, None
        if step is None:
            return
        if self._names.whole not in step.values:
            self._untimed += 1
            return
        require_later(step.number, self.steps[-1].number if self.steps else -1)
        if len(self.steps) >= MOST_STEPS:
            raise DamagedBundle(f"the log has more than {MOST_STEPS} steps")
        self.steps.append(step)

    def notes(self) -> list[str]:
        """What was left out of it."""
        count = self._untimed
        are = "tells no time and is" if count == 1 else "tell no time and are"
        return [f"{count} step{'s' * (count != 1)} of the log {are} left out"] if count else []


def require_later(number: int, last: int) -> None:
    if number <= last:
        raise DamagedBundle(
            f"the log tells step {number} behind step {last}: two runs in one log? Import each by itself"
        )


def read_steps(data: bytes, tool: Tool) -> Log:
    """Every step of a log, whose form is told by how it begins. Raises DamagedBundle."""
    if len(data) > MOST_LOG_BYTES:
        raise DamagedBundle(f"the log has {len(data)} bytes, more than the {MOST_LOG_BYTES} that are read")
    if b"\0" in data:
        raise DamagedBundle("the log holds zero bytes, so it is no text: name a console's output, or a tracker's JSON")
    head = data[:4096].lstrip()
    # an object's first name; a configuration that Python printed begins with another quotation mark
    if head[:1] == b"{" and head[1:].lstrip()[:1] == b'"':
        log, read = Log(tool, "tracker"), _verl_tracker if tool == "verl" else _scalars
    else:
        log, read = Log(tool, "console"), _CONSOLES[tool]
    read(data, log)
    log.end()
    if not log.steps:
        detail = "".join(f" ({note})" for note in log.notes())
        raise DamagedBundle(f"the log holds no step of {tool}: nowhere does it tell {NAMES[tool].whole}{detail}")
    return log


def _lines(data: bytes) -> Iterator[str]:
    """Bytes that are no text do no harm, since other lines may be good."""
    for place, line in enumerate(data.split(b"\n"), start=1):
        if len(line) > LINE_BYTES:
            raise DamagedBundle(f"line {place} of the log is longer than {LINE_BYTES} bytes")
        yield line.decode(errors="replace")


def _verl_console(data: bytes, log: Log) -> None:
    """``step:N - name:number - ...``, behind whatever Ray puts before a line."""
    for line in _lines(data):
        if "step:" not in line:
            continue
        parts = _plain(line).split(" - ")
        before, found, number = parts[0].rpartition("step:")
        if not found or (before and not before[-1].isspace()) or not _is_count(number):
            continue
        log.begin(int(number))
        for part in parts[1:]:
            name, _, text = part.rpartition(":")
            log.add(name.strip(), _number(text))


def _verl_tracker(data: bytes, log: Log) -> None:
    """The file of verl's own tracker: ``{"step": N, "data": {...}}`` a line."""
    for place, line in enumerate(_lines(data), start=1):
        if not line.strip():
            continue
        body = parse_object(line, f"line {place} of the log")
        number, values = body.get("step"), body.get("data")
        if type(number) is not int or number < 0 or type(values) is not dict:
            raise DamagedBundle(f"line {place} of the log is no step: it needs step, a number, and data, an object")
        log.begin(number)
        for name, value in values.items():
            log.add(name, _json_number(value))


def _nemo_console(data: bytes, log: Log) -> None:
    """Blocks below ``=== Step N/M ===``, each with a list of timers. Steps count from 1 again in each epoch."""
    printed = blocks = 0
    for line in _lines(data):
        if "===" in line and (found := _HEADING.search(_plain(line))) is not None:
            last, printed = printed, int(found[2]) if found[1] == "Step" else 0
            if found[1] == "Step":
                require_later(printed, last)
                blocks += 1
                log.begin(blocks)
        elif _BULLET in line:
            log.add(*_bullet(line))


def _skyrl_console(data: bytes, log: Log) -> None:
    """A dictionary behind ``Step N:``, a line a name, as Python prints it; two of a step are one."""
    is_open = False
    for line in _lines(data):
        text = _plain(line)
        before, _, number = text.rpartition("Step ")
        if text.endswith(":") and _is_count(number[:-1]) and (not before or before[-1].isspace()):
            if log.current is None or log.current.number != int(number[:-1]):
                log.begin(int(number[:-1]))
            is_open = True
        elif is_open:
            name, _, value = text.partition("': ")
            log.add(name.partition("'")[2], _number(value.rstrip("},").strip("'")))
            is_open = not text.endswith("}")


def _areal_console(data: bytes, log: Log) -> None:
    """Tables of names and numbers behind ``Train step N/M done.``, by whose time stamps alone a step has seconds."""
    ended: datetime | None = None
    for line in _lines(data):
        if _BAR in line:
            cells = [cell.strip() for cell in line.split(_BAR)]
            for name, text in zip(cells[1::2], cells[2::2], strict=False):
                log.add(name, _number(text))
        elif "Train step " in line and (found := _DONE.search(_plain(line))) is not None:
            began, ended = ended, None
            with suppress(ValueError):
                ended = datetime.strptime(found[1], "%Y%m%d-%H:%M:%S.%f")
            follows = log.current is not None and int(found[2]) == log.current.number + 1
            log.begin(int(found[2]))
            if follows and began is not None and ended is not None:
                log.add_seconds((ended - began).total_seconds())


def _scalars(data: bytes, log: Log) -> None:
    """TensorBoard's scalars as NeMo-RL's own script writes them out: ``{"name": {"step": number}}``."""
    if len(data) > DOCUMENT_BYTES:
        raise DamagedBundle(f"the log has {len(data)} bytes of JSON, more than the {DOCUMENT_BYTES} that are read")
    found: dict[int, Step] = {}
    for name, values in parse_object(data.decode(errors="replace"), "the log").items():
        if type(values) is not dict:
            raise DamagedBundle(f"{ascii(name)[:80]} of the log is no object of numbers by step")
        for text, value in values.items():
            if not _is_count(text):
                raise DamagedBundle(f"{ascii(name)[:80]} of the log has a step {ascii(text)[:40]}, which is no number")
            log.current = found.setdefault(int(text), Step(int(text)))
            log.add(name, _json_number(value))
    for number in sorted(found):
        log.current = found[number]
        log.end()


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
