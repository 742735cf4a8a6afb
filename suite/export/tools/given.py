"""What tools that follow experiments are given of a run, and what their environment says meanwhile."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from suite.export.runs import SETTINGS
from suite.export.tables import TABLES, Row, rows_of
from suite.report.facts.entry import Entry

_NOT_STATED = ("status", "started", "ended", "tags")


@dataclass(frozen=True)
class Given:
    """One run. ``name``: its id, with a number behind it where runs of several folders share one.

    ``settings`` and ``texts`` are by column, without nulls; ``figures`` are finite numbers, of phases as
    ``phase/<phase>/<column>``. ``iterations``: seconds of each completed one.
    """

    name: str
    row: Row
    settings: dict[str, str | int | float | bool]
    texts: dict[str, str]
    figures: dict[str, float]
    iterations: tuple[float, ...]


def given(entries: Sequence[Entry], tags: Mapping[str, tuple[str, ...]]) -> Iterator[Given]:
    """In the order of the tables."""
    seen: dict[str, int] = {}
    for entry in sorted(entries, key=lambda entry: (entry.record.run.id, entry.path)):
        (row,) = rows_of(TABLES["runs"], [entry], tags)
        phases = rows_of(TABLES["phases"], [entry])
        number = seen[row["run"]] = seen.get(row["run"], 0) + 1
        told = {name: value for name, value in row.items() if name not in SETTINGS}
        figures = {name: float(value) for name, value in told.items() if isinstance(value, (int, float))}
        lines = {name: value for name, value in told.items() if isinstance(value, (str, list)) and value}
        yield Given(
            name=row["run"] if number == 1 else f"{row['run']}.{number}",
            row=row,
            settings={name: row[name] for name in row if name in SETTINGS and isinstance(row[name], (str, int, float))},
            texts={
                name: value if isinstance(value, str) else "\n".join(value)
                for name, value in lines.items()
                if name not in _NOT_STATED
            },
            figures={**figures, **{name: value for phase in phases for name, value in _of_phase(phase)}},
            iterations=tuple(entry.record.iterations.seconds),
        )


def _of_phase(row: Row) -> Iterator[tuple[str, float]]:
    table = TABLES["phases"]
    for one in table.columns:
        if one.name not in table.keys and one.kind in ("number", "integer") and row[one.name] is not None:
            yield f"phase/{row['phase']}/{one.name}", float(row[one.name])


@contextmanager
def variable(name: str, value: str) -> Iterator[None]:
    """An environment variable that has this value meanwhile."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
