"""What a column of an exported table is: its name, type, unit and meaning, and how its value is read; and those
that every table begins with: which run a row is of, and what runs are grouped and chosen by."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, Literal, get_args

from suite.bundle.parts import Validity
from suite.bundle.record import Status
from suite.report.facts.entry import Entry
from suite.report.formatting.escape import visible

#: ``texts``: a list of texts. ``time``: in UTC, to the microsecond.
Kind = Literal["text", "texts", "integer", "number", "boolean", "time"]
#: A text is one line and never longer, and a list of texts has no more of them.
LONGEST_TEXT, MOST_TEXTS = 2000, 200
#: What every reader's integers hold.
_MOST_INTEGER = (1 << 63) - 1


@dataclass(frozen=True)
class Source:
    """What a row is made of: a run as a report has it, or an import, and the tags that its user gave it.

    ``phase`` and ``iteration``: in the tables of these, which one.
    """

    entry: Entry
    tags: tuple[str, ...] = ()
    phase: str = ""
    iteration: int = 0


@dataclass(frozen=True)
class Column:
    """One column. ``meaning`` says when a value is null, unless it never is (``required``).

    ``read``: gives the value, unchecked; or the way to it from the entry, ``record.run.id``, where ``*`` is the phase.
    ``values``: all that there can be; empty: no list of them.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str
    read: str | Callable[[Source], Any]
    required: bool = False
    values: tuple[str, ...] = ()

    def value(self, source: Source) -> Any:
        """Of the column's kind, or null: also where what was read is of another one, as facts of the environment may
        be, which whoever made the bundle chose."""
        return _AS_KIND[self.kind](self._read(source))

    @cached_property
    def _read(self) -> Callable[[Source], Any]:
        return _reader(self.read) if isinstance(self.read, str) else self.read


def _reader(way: str) -> Callable[[Source], Any]:
    """Of null where a part of the way is not there."""
    first, *names = way.split(".")
    is_plain = "*" not in names

    def read(source: Source) -> Any:
        value: Any = getattr(source.entry, first)
        for name in names if is_plain else [source.phase if name == "*" else name for name in names]:
            if value is None:
                return None
            value = value.get(name) if type(value) is dict else getattr(value, name, None)
        return value

    return read


def _text(value: Any) -> str | None:
    """One line that shows and does nothing else; an empty one is null."""
    return (visible(value, LONGEST_TEXT) or None) if isinstance(value, str) else None


def _texts(value: Any) -> list[str] | None:
    if not isinstance(value, (list, tuple)):
        return None
    return [visible(one, LONGEST_TEXT) for one in value[:MOST_TEXTS] if isinstance(one, str)]


def _number(value: Any) -> float | None:
    if type(value) is int and abs(value) <= _MOST_INTEGER:
        return float(value)
    return value if type(value) is float and math.isfinite(value) else None


def _time(value: Any) -> datetime | None:
    """Of Unix seconds; null for a time that no calendar holds."""
    seconds = _number(value)
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None


_AS_KIND: dict[Kind, Callable[[Any], Any]] = {
    "text": _text,
    "texts": _texts,
    "integer": lambda value: value if type(value) is int and abs(value) <= _MOST_INTEGER else None,
    "number": _number,
    "boolean": lambda value: value if type(value) is bool else None,
    "time": _time,
}


def time_text(moment: datetime) -> str:
    """``2026-11-22T21:52:08.123456Z``: always of one length, so that sorting texts sorts times."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


EXPORT_SCHEMA = "suite/export/1"
STATUSES: tuple[str, ...] = get_args(Status)
VALIDITIES: tuple[str, ...] = get_args(Validity.__annotations__["status"])
_VERSION = "version of the columns and their meaning"
_ALGORITHM = "its name, with the options that are not its defaults"
_VALIDITY = (
    "`suspect`: something disturbed the run; `invalid`: its figures cannot be; null: nothing is known, as of a run "
    "without iterations that count and of an older bundle"
)
_DIGEST = "SHA-256 over the bundle's evidence; null: it holds what is no plain file"


def _key(name: str, meaning: str, values: tuple[str, ...] = ()) -> Column:
    """A text of the record's facts of the run."""
    return Column(name, "text", "", meaning, f"record.run.{name}", True, values)


KEYS: tuple[Column, ...] = (
    Column("schema", "text", "", _VERSION, lambda source: EXPORT_SCHEMA, True, (EXPORT_SCHEMA,)),
    Column("run", "text", "", "id of the run", "record.run.id", True),
    Column("path", "text", "", "of the bundle, as it was found", "path", True),
    _key("backend", "the stack under test"),
    _key("size", "name of the model size"),
    Column("ranks", "integer", "", "processes of the run", "record.run.ranks", True),
    Column(
        "layout", "text", "", "how ranks share the work, in short", lambda it: it.entry.manifest.layout.label(), True
    ),
    Column("algorithm", "text", "", _ALGORITHM, lambda source: source.entry.manifest.workload.algorithm.text(), True),
    _key("workload", "its name"),
    _key("device", "what ranks compute on", ("cpu", "cuda")),
    _key("precision", "of the run"),
    Column("repeat", "integer", "", "which repeat of its row, from 1", "record.run.repeat", True),
    Column("status", "text", "", "how the run ended", "record.status", True, STATUSES),
    Column("validity", "text", "", _VALIDITY, "record.validity.status", values=VALIDITIES),
    _key("manifest_hash", "equal: repeats of one row"),
    _key("work_hash", "equal: did equal work"),
    Column("digest", "text", "", _DIGEST, "digest"),
)
