"""The tables that results are exported as, and the rows that runs give in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from suite.bundle.amounts import Peaks
from suite.bundle.imported.record import ImportedRow
from suite.export.columns import Column, Reader, Source, part
from suite.export.imported import IMPORTED_COLUMNS
from suite.export.keys import KEYS
from suite.export.runs import RUN_COLUMNS
from suite.report.facts.entry import Entry
from suite.spec.base import UsageError
from suite.spec.names import nearest
from suite.spec.phases import ALL_NAMES

Row = dict[str, Any]
RUNS, IMPORTED = "runs", "imported"
_NO_KEYS = {"schema", "manifest_hash", "work_hash", "digest"}
_KEYS = frozenset({column.name for column in KEYS} - _NO_KEYS | {"phase", "iteration"})
_IMPORTED_KEYS = frozenset(("mark", "id", "path", "tool", "model", "devices"))


@dataclass(frozen=True)
class Table:
    """``row_is``: what one row of it is. ``noun``: that in a word. ``keys``: columns that tell rows apart, or by which
    they are grouped; figures are never keys."""

    name: str
    noun: str
    row_is: str
    columns: tuple[Column, ...]
    keys: frozenset[str] = _KEYS

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def _in_phase(*names: str, field: str = "") -> Reader:
    """Of what the record holds by phase under these names that of the row's, or a ``field`` of it; null without it."""
    fields = (field,) if field else ()
    return lambda source: part(*names, source.phase, *fields)(source)


def _phase_columns() -> Iterator[Column]:
    meaning = "in the order of an iteration; `other` is what an iteration takes beyond its timed phases"
    yield Column("phase", "text", "", meaning, lambda source: source.phase, True, ALL_NAMES)
    meaning = "mean over the counted iterations, of the slowest rank each"
    yield Column("seconds", "number", "seconds", meaning, _in_phase("phases", field="seconds"), True)
    meaning = "95 % bound from the run's own iterations; null: the phase took no time, one iteration, an older bundle"
    yield Column("seconds_low", "number", "seconds", f"lower {meaning}", _in_phase("phase_intervals", field="low"))
    yield Column("seconds_high", "number", "seconds", f"upper {meaning}", _in_phase("phase_intervals", field="high"))
    meaning = "of the iteration; null: an asynchronous run, in whose iterations others work meanwhile"
    yield Column("share", "number", "share", meaning, _in_phase("phases", field="share"))
    meaning = "of the tokens that the phase is about; null: it is about none, or took no measurable time"
    yield Column("tokens_per_second", "number", "tokens/s", meaning, _in_phase("phases", field="tokens_per_second"))
    one = "null: one rank, `other`, or an older bundle"
    meaning = f"that the rank which was done first waits for the slowest, mean over iterations; {one}"
    yield Column("wait_longest_seconds", "number", "seconds", meaning, _in_phase("waits", field="longest_seconds"))
    meaning = f"that ranks wait for the slowest, mean over ranks and iterations; {one}"
    yield Column("wait_mean_seconds", "number", "seconds", meaning, _in_phase("waits", field="mean_seconds"))
    for name in Peaks.model_fields:
        meaning = "as in the runs' table, in this phase; null: not known"
        yield Column(name, "integer", "bytes", meaning, _in_phase("memory", "by_phase", field=name))
    meaning = "the least that the layout needs in this phase, computed; null: nothing is known to be needed"
    yield Column("theoretical_minimum_bytes", "integer", "bytes", meaning, _in_phase("memory", "floor", "by_phase"))


def _seconds(source: Source) -> float:
    return source.entry.record.iterations.seconds[source.iteration]


def _is_warmup(source: Source) -> bool:
    return source.iteration < source.entry.record.steady_state.warmup


def _is_void(source: Source) -> bool:
    return source.iteration in (source.entry.record.void_iterations or ())


def _is_counted(source: Source) -> bool:
    return not _is_warmup(source) and not _is_void(source)


def _iteration_columns() -> Iterator[Column]:
    yield Column("iteration", "integer", "", "from 0, warm-up first", lambda source: source.iteration, True)
    yield Column("seconds", "number", "seconds", "of the slowest rank", _seconds, True)
    yield Column("warmup", "boolean", "", "left out at the start", _is_warmup, True)
    yield Column("void", "boolean", "", "skipped optimizer steps, and so does not count", _is_void, True)
    yield Column("counted", "boolean", "", "the run's figures are made of it", _is_counted, True)


TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(RUNS, "run", "a run, whatever became of it", RUN_COLUMNS),
        Table(
            "phases",
            "phase",
            "a phase of a run; a run in which no iteration counts has none",
            (*KEYS, *_phase_columns()),
        ),
        Table(
            "iterations",
            "iteration",
            "a completed iteration of a run, warm-up in; a run that completed none has none",
            (*KEYS, *_iteration_columns()),
        ),
        Table(IMPORTED, "import", "another tool's log, which was not measured here", IMPORTED_COLUMNS, _IMPORTED_KEYS),
    )
}


def find_table(name: str) -> Table:
    """Raises UsageError for a name that is none."""
    if name not in TABLES:
        raise UsageError(f"there is no table {name!r}{nearest(name, TABLES)}; there are {', '.join(TABLES)}")
    return TABLES[name]


def rows_of(
    table: Table,
    entries: Sequence[Entry],
    tags: Mapping[str, tuple[str, ...]] | None = None,
    imported: Sequence[ImportedRow] = (),
) -> Iterator[Row]:
    """The rows of these runs, column by column in the order of the table: by run id, then path, then their own order.

    ``tags``: of runs by the path of their bundle. ``imported``: what alone is in the table of that name.
    """
    if table.name == IMPORTED:
        for row in sorted(imported, key=lambda row: (row.record.id, row.path)):
            source = Source(row, (tags or {}).get(row.path, ()))  # type: ignore[arg-type] # it has what columns ask
            yield {column.name: column.value(source) for column in table.columns}
        return
    for entry in sorted(entries, key=lambda entry: (entry.record.run.id, entry.path)):
        source = Source(entry, (tags or {}).get(entry.path, ()))
        keys = {column.name: column.value(source) for column in KEYS}
        own = table.columns[len(KEYS) :]
        for one in _sources(table.name, source):
            yield {**keys, **{column.name: column.value(one) for column in own}}


def _sources(name: str, source: Source) -> Iterable[Source]:
    record = source.entry.record
    if name == "phases":
        known = record.phases
        return (replace(source, phase=phase) for phase in ALL_NAMES if known is not None and getattr(known, phase))
    if name == "iterations":
        return (replace(source, iteration=index) for index in range(len(record.iterations.seconds)))
    return (source,)
