"""What tools that follow experiments are given of a run, and what their environment says meanwhile."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from suite.export.columns import KEYS
from suite.export.runs import SETTINGS
from suite.export.tables import TABLES, Row, rows_of
from suite.report.facts.entry import Entry
from suite.spec.base import UsageError, printable

_LONGEST_MESSAGE = 300
_NOT_STATED = ("status", "started", "ended", "tags")


@dataclass(frozen=True)
class Given:
    """One run. ``name``: its id, with a number behind it where runs of several folders share one.

    ``settings`` and ``texts`` are by column, without nulls; ``figures`` are finite numbers, of phases as
    ``phase/<phase>/<column>``. ``iterations``: seconds of each completed one.
    """

    name: str
    row: Row
    iterations: tuple[float, ...]
    settings: dict[str, str | int | float | bool] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    figures: dict[str, float] = field(default_factory=dict)


def given(entries: Sequence[Entry], tags: Mapping[str, tuple[str, ...]]) -> Iterator[Given]:
    """In the order of the tables."""
    seen: dict[str, int] = {}
    table = TABLES["phases"]
    timed = [one.name for one in table.columns[len(KEYS) :] if one.kind in ("number", "integer")]
    for entry in sorted(entries, key=lambda entry: (entry.record.run.id, entry.path)):
        (row,) = rows_of(TABLES["runs"], [entry], tags)
        number = seen[row["run"]] = seen.get(row["run"], 0) + 1
        run = Given(row["run"] if number == 1 else f"{row['run']}.{number}", row, entry.record.iterations.seconds)
        for name, value in row.items():
            if name in SETTINGS and isinstance(value, (str, int, float)):
                run.settings[name] = value
            elif isinstance(value, (int, float)):
                run.figures[name] = float(value)
            elif value and isinstance(value, (str, list)) and name not in _NOT_STATED:
                run.texts[name] = value if isinstance(value, str) else "\n".join(value)
        for phase in rows_of(table, [entry]):
            known = {f"phase/{phase['phase']}/{name}": phase[name] for name in timed if phase[name] is not None}
            run.figures.update((name, float(value)) for name, value in known.items())
        yield run


@contextmanager
def handing(tool: str, refused: type[Exception], **variables: str) -> Iterator[None]:
    """Turn what a tool refuses into a UsageError; environment variables have these values meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    except refused as error:
        raise UsageError(f"{tool} refuses: {printable(str(error))[:_LONGEST_MESSAGE]}") from error
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
