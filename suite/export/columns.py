"""What a column of an exported table is: its name, type, unit and meaning, and how its value is read; and those
that every table begins with: which run a row is of, and what runs are grouped and chosen by."""

import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import BaseModel

from suite.report.facts.entry import Entry
from suite.report.formatting.escape import visible

#: ``texts``: a list of texts. ``time``: in UTC, to the microsecond.
Kind = Literal["text", "texts", "integer", "number", "boolean", "time"]
#: A text is one line and never longer, and a list of texts has no more of them.
LONGEST_TEXT, MOST_TEXTS = 2000, 200
#: What every reader's integers hold.
_MOST_INTEGER = (1 << 63) - 1
#: By what a column's name holds; the first that fits.
_UNITS = {
    r"samples_per_second": "samples/s",
    r"tokens_per_second": "tokens/s",
    r"seconds": "seconds",
    r"bytes$": "bytes",
    r"share|at_cap$|^effective_sample_size$": "share",
    r"tokens$|_length_": "tokens",
    r"^peak_flops$": "FLOP/s",
    r"flops": "FLOPs",
    r"joules": "joules",
    r"^memory_efficiency|^[mh]fu|^mbu$": "ratio",
}


@dataclass(frozen=True)
class Column:
    """One column. ``meaning`` says when a value is null, unless it never is (``required``).

    ``read``: gives the value, unchecked, of a run as a report has it, or of what else the row is made of. ``values``:
    all that there can be; empty: no list of them.
    """

    name: str
    kind: Kind
    meaning: str
    read: Callable[[Any], Any]
    required: bool = False
    values: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """Empty: it has none."""
        if self.kind == "time":
            return "UTC"
        return next((unit for holds, unit in _UNITS.items() if re.search(holds, self.name)), "")

    def value(self, of: Any) -> Any:
        """Of the column's kind, or null: also where a text or a number is of another one, as facts of the environment
        may be, which whoever made the bundle chose."""
        return _AS_KIND[self.kind](self.read(of))


def column(way: str, meaning: str = "", name: str = "", kind: Kind | None = None, of: Any = Entry) -> Column:
    """A field, by the way to it: ``record.run.id``. What is not said is as it is declared: its type, its meaning, and
    when it is null, or one on the way to it."""
    names = way.split(".")
    name = name or names[-1]
    type_, own, nulls = of, "", list[str]()
    for part in names:
        type_, own = _declared(type_, part)
        if NoneType in get_args(type_):
            nulls.insert(0, own)
            type_ = next(one for one in get_args(type_) if one is not NoneType)
    meaning = meaning or own or name.replace("_", " ")
    for reason in (*nulls, "null: not known") if nulls else ():
        if "null" not in meaning and reason not in ("", own):
            meaning = f"{meaning}; {reason}"
    values = get_args(type_) if get_origin(type_) is Literal else ()

    def read(value: Any) -> Any:
        for part in names:
            if value is None:
                break
            value = value.get(part) if type(value) is dict else getattr(value, part, None)
        return value

    return Column(name, kind or _kind_of(type_), meaning, read, not nulls, values)


def columns(way: str, names: Iterable[str], meaning: str = "", prefix: str = "", of: Any = Entry) -> Iterator[Column]:
    """Several fields of one, whose columns' names begin with the prefix."""
    return (column(f"{way}.{name}", meaning, f"{prefix}{name}", of=of) for name in names)


def _declared(holder: Any, name: str) -> tuple[Any, str]:
    """The type of a field, and what it is described by. What is in a dictionary may lack, and of what is in plain JSON
    nothing is declared."""
    if holder is Any or get_origin(holder) is dict:
        return (get_args(holder) or (str, Any))[1] | None, ""
    if issubclass(holder, BaseModel):
        return holder.model_fields[name].annotation, holder.model_fields[name].description or ""
    type_ = _hints(holder)[name]
    if get_origin(type_) is not Annotated:
        return type_, ""
    plain, *notes = get_args(type_)
    return plain, next((note.description for note in notes if note.description), "")


@cache
def _hints(holder: type) -> dict[str, Any]:
    return get_type_hints(holder, include_extras=True)


def _kind_of(type_: Any) -> Kind:
    kinds: dict[Any, Kind] = {int: "integer", float: "number", bool: "boolean", tuple: "texts"}
    return kinds.get(getattr(type_, "__origin__", type_), "text")


def _text(value: Any) -> str | None:
    """One line that shows and does nothing else; an empty one is null."""
    return (visible(value, LONGEST_TEXT) or None) if isinstance(value, str) else None


def _texts(value: tuple[str, ...] | None) -> list[str] | None:
    return None if value is None else [visible(one, LONGEST_TEXT) for one in value[:MOST_TEXTS]]


def _number(value: Any) -> float | None:
    if type(value) is int and abs(value) <= _MOST_INTEGER:
        return float(value)
    return float(value) if isinstance(value, float) and math.isfinite(value) else None


_AS_KIND: dict[Kind, Callable[[Any], Any]] = {
    "text": _text,
    "texts": _texts,
    "integer": lambda value: value if type(value) is int and abs(value) <= _MOST_INTEGER else None,
    "number": _number,
    "boolean": lambda value: value,
    "time": lambda value: None if value is None else datetime.fromtimestamp(value, timezone.utc),
}


def time_text(moment: datetime) -> str:
    """``2026-11-22T21:52:08.123456Z``: always of one length, so that sorting texts sorts times."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")


EXPORT_SCHEMA = "suite/export/1"
_ALGORITHM = "its name, with the options that are not its defaults"
_VALIDITY = "`suspect`: something disturbed the run; `invalid`: its figures cannot be; null: no iteration counts"
SCHEMA = Column("schema", "text", "version of the columns", lambda _: EXPORT_SCHEMA, True, (EXPORT_SCHEMA,))
#: Of what is beside the bundle: who makes a row fills them in.
TAGS = Column("tags", "texts", "that the user gave it (`suite runs tag`), sorted", lambda _: (), True)
KEYS: tuple[Column, ...] = (
    SCHEMA,
    column("record.run.id", "id of the run", "run"),
    column("path", "of the bundle, as it was found"),
    column("record.run.backend", "the stack under test"),
    column("record.run.size"),
    column("record.run.ranks", "processes of the run"),
    Column("layout", "text", "how ranks share the work, in short", lambda run: run.manifest.layout.label(), True),
    Column("algorithm", "text", _ALGORITHM, lambda run: run.manifest.workload.algorithm.text(), True),
    column("record.run.workload"),
    column("record.run.device", "what ranks compute on"),
    column("record.run.precision"),
    column("record.run.repeat", "which repeat of its row, from 1"),
    column("record.status", "how the run ended"),
    column("record.validity.status", _VALIDITY, "validity"),
    column("record.run.manifest_hash", "equal: repeats of one row"),
    column("record.run.work_hash"),
    column("digest", "SHA-256 over the bundle's evidence; null: it holds what is no plain file"),
)
