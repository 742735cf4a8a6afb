"""The steps of other tools' logs as they are published: consoles' lines, and files of their trackers. Trusts nothing.

A log is anybody's text: it is read once, in time that grows with its length, a bounded part of it, and only the numbers
that are asked for are taken from it.
"""

import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from suite.bundle.files import DamagedBundle, parse_object
from suite.bundle.imported.timers import NAMES, Tool
from suite.spec.base import UsageError
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
_STAMP = "%Y%m%d-%H:%M:%S.%f"


class UnusableLog(UsageError):
    """A log that gives no steps, in one line that says why."""


@dataclass
class Step:
    """One step: its number, and the finite numbers that are read of it, by the names that the tool's trackers have."""

    number: int
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadLog:
    """``form``: which of the tool's logs it is. ``notes``: what was left out of it, a line each."""

    form: Literal["console", "tracker"]
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()


class _Steps:
    """Steps as a log tells them, one after the other."""

    def __init__(self, tool: Tool) -> None:
        self._names = NAMES[tool]
        self.whole = self._names.whole
        self._place = self._begun = self._values = self.untimed = 0
        self.current: Step | None = None
        self.timed: list[Step] = []

    def lines(self, data: bytes) -> Iterator[str]:
        """Bytes that are no text do no harm, since other lines may be good."""
        for self._place, line in enumerate(data.split(b"\n"), start=1):
            if len(line) > LINE_BYTES:
                raise UnusableLog(f"line {self._place} of the log is longer than {LINE_BYTES} bytes")
            yield line.decode(errors="replace")

    def begin(self, number: int) -> None:
        """What follows is of this step, and nothing more of the one before."""
        self.end()
        self.current, self._begun = Step(number), self._place

    def add(self, name: str, value: float | None) -> None:
        """Keep a number of the current step, where it is one and is asked for."""
        step = self.current
        if step is None or value is None or not self._names.asks_for(name) or len(name) > _LONGEST_NAME:
            return
        if step.values.setdefault(name, value) != value:
            where = f"line {self._place} tells {ascii(name)[:80]} of step {step.number}"
            raise UnusableLog(f"{where} with another value again")
        self._values += 1
        if self._values > MOST_VALUES:
            raise UnusableLog(f"the log tells more than {MOST_VALUES} numbers")

    def end(self) -> None:
        """A step without a time is counted, as validations print such lines too."""
        step, self.current = self.current, None
        if step is None:
            return
        if self.whole not in step.values:
            self.untimed += 1
            return
        self.require_later(step.number, self.timed[-1].number if self.timed else -1, self._begun)
        if len(self.timed) >= MOST_STEPS:
            raise UnusableLog(f"the log has more than {MOST_STEPS} steps")
        self.timed.append(step)

    def require_later(self, number: int, last: int, place: int | None = None) -> None:
        if number <= last:
            where = f"line {place or self._place} of the log is of step {number} behind step {last}"
            raise UnusableLog(f"{where}: two runs in one log? Import each by itself")


def read_steps(data: bytes, tool: Tool) -> ReadLog:
    """Every step of a log, whose form is told by how it begins. Raises UnusableLog."""
    if len(data) > MOST_LOG_BYTES:
        raise UnusableLog(f"the log has {len(data)} bytes, more than the {MOST_LOG_BYTES} that are read")
    if b"\0" in data:
        raise UnusableLog("the log holds zero bytes, so it is no text: name a console's output, or a tracker's JSON")
    console, tracker = _FORMS[tool]
    steps, head = _Steps(tool), data[:4096].lstrip()
    # an object's first name; a configuration that Python printed begins with another quotation mark
    is_tracker = head[:1] == b"{" and head[1:].lstrip()[:1] == b'"'
    read = tracker if is_tracker else console
    read(data, steps)
    steps.end()
    count = steps.untimed
    are = "tells no time and is" if count == 1 else "tell no time and are"
    note = f"{count} step{'s' * (count != 1)} of the log {are} left out" if count else ""
    if not steps.timed:
        detail = f" ({note})" if note else ""
        raise UnusableLog(f"the log holds no step of {tool}: nowhere does it tell {steps.whole}{detail}")
    return ReadLog("tracker" if is_tracker else "console", tuple(steps.timed), (note,) if note else ())


def _verl_console(data: bytes, steps: _Steps) -> None:
    """``step:N - name:number - ...``, behind whatever Ray puts before a line."""
    for line in steps.lines(data):
        if "step:" not in line:
            continue
        parts = _plain(line).split(" - ")
        before, found, number = parts[0].rpartition("step:")
        if not found or (before and not before[-1].isspace()) or not _is_count(number):
            continue
        steps.begin(int(number))
        for part in parts[1:]:
            name, _, text = part.rpartition(":")
            steps.add(name.strip(), _number(text))


def _verl_tracker(data: bytes, steps: _Steps) -> None:
    """The file of verl's own tracker: ``{"step": N, "data": {...}}`` a line."""
    for place, line in enumerate(steps.lines(data), start=1):
        if not line.strip():
            continue
        body = _object(line, f"line {place} of the log")
        number, values = body.get("step"), body.get("data")
        if type(number) is not int or number < 0 or type(values) is not dict:
            raise UnusableLog(f"line {place} of the log is no step: it needs step, a number, and data, an object")
        steps.begin(number)
        for name, value in values.items():
            steps.add(name, _json_number(value))


def _nemo_console(data: bytes, steps: _Steps) -> None:
    """Blocks below ``=== Step N/M ===``, each with a list of timers. Steps count from 1 again in each epoch."""
    printed = blocks = 0
    for line in steps.lines(data):
        if "===" in line and (found := _HEADING.search(_plain(line))) is not None:
            last, printed = printed, int(found[2]) if found[1] == "Step" else 0
            if found[1] == "Step":
                steps.require_later(printed, last)
                blocks += 1
                steps.begin(blocks)
        elif _BULLET in line:
            steps.add(*_bullet(line))


def _skyrl_console(data: bytes, steps: _Steps) -> None:
    """A dictionary behind ``Step N:``, a line a name, as Python prints it; two of a step are one."""
    is_open = False
    for line in steps.lines(data):
        text = _plain(line)
        before, _, number = text.rpartition("Step ")
        if text.endswith(":") and _is_count(number[:-1]) and (not before or before[-1].isspace()):
            if steps.current is None or steps.current.number != int(number[:-1]):
                steps.begin(int(number[:-1]))
            is_open = True
        elif is_open:
            name, _, value = text.partition("': ")
            steps.add(name.partition("'")[2], _number(value.rstrip("},").strip("'")))
            is_open = not text.endswith("}")


def _areal_console(data: bytes, steps: _Steps) -> None:
    """Tables of names and numbers behind ``Train step N/M done.``, by whose time stamps alone a step has seconds."""
    ended: datetime | None = None
    for line in steps.lines(data):
        if _BAR in line:
            cells = [cell.strip() for cell in line.split(_BAR)]
            for name, text in zip(cells[1::2], cells[2::2], strict=False):
                steps.add(name, _number(text))
        elif "Train step " in line and (found := _DONE.search(_plain(line))) is not None:
            began, ended = ended, _moment(found[1])
            follows = steps.current is not None and int(found[2]) == steps.current.number + 1
            steps.begin(int(found[2]))
            if follows and began is not None and ended is not None:
                steps.add(steps.whole, (ended - began).total_seconds())


def _moment(text: str) -> datetime | None:
    try:
        return datetime.strptime(text, _STAMP)
    except ValueError:
        return None


def _scalars(data: bytes, steps: _Steps) -> None:
    """TensorBoard's scalars as NeMo-RL's own script writes them out: ``{"name": {"step": number}}``."""
    if len(data) > DOCUMENT_BYTES:
        raise UnusableLog(f"the log has {len(data)} bytes of JSON, more than the {DOCUMENT_BYTES} that are read")
    found: dict[int, Step] = {}
    for name, values in _object(data.decode(errors="replace"), "the log").items():
        if type(values) is not dict:
            raise UnusableLog(f"{ascii(name)[:80]} of the log is no object of numbers by step")
        for text, value in values.items():
            if not _is_count(text):
                raise UnusableLog(f"{ascii(name)[:80]} of the log has a step {ascii(text)[:40]}, which is no number")
            steps.current = found.setdefault(int(text), Step(int(text)))
            steps.add(name, _json_number(value))
    for number in sorted(found):
        steps.current = found[number]
        steps.end()


_Reader = Callable[[bytes, _Steps], None]
#: Of each tool: how its console is read, and how the file of a tracker.
_FORMS: Mapping[Tool, tuple[_Reader, _Reader]] = {
    "verl": (_verl_console, _verl_tracker),
    "nemo-rl": (_nemo_console, _scalars),
    "skyrl": (_skyrl_console, _scalars),
    "areal": (_areal_console, _scalars),
}


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        return parse_object(text, where)
    except DamagedBundle as error:
        raise UnusableLog(str(error)) from error


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
