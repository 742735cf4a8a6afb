"""The tables that results are exported as, and the rows that runs give in them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from suite.bundle.imported.record import MARK, TOLD, ImportedRow
from suite.bundle.imported.record import Source as From
from suite.bundle.imported.timers import Tool
from suite.bundle.parts import Peaks
from suite.export.columns import EXPORT_SCHEMA, KEYS, Column, Kind, Source
from suite.export.runs import RUN_COLUMNS
from suite.report.facts.entry import Entry
from suite.spec.base import UsageError
from suite.spec.names import nearest
from suite.spec.phases import ALL, ALL_NAMES

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


def _phase_columns() -> Iterator[Column]:
    meaning = "in the order of an iteration; `other` is what an iteration takes beyond its timed phases"
    yield Column("phase", "text", "", meaning, lambda source: source.phase, True, ALL_NAMES)
    meaning = "mean over the counted iterations, of the slowest rank each"
    yield Column("seconds", "number", "seconds", meaning, "record.phases.*.seconds", True)
    meaning = "95 % bound from the run's own iterations; null: the phase took no time, one iteration, an older bundle"
    yield Column("seconds_low", "number", "seconds", f"lower {meaning}", "record.phase_intervals.*.low")
    yield Column("seconds_high", "number", "seconds", f"upper {meaning}", "record.phase_intervals.*.high")
    meaning = "of the iteration; null: an asynchronous run, in whose iterations others work meanwhile"
    yield Column("share", "number", "share", meaning, "record.phases.*.share")
    meaning = "of the tokens that the phase is about; null: it is about none, or took no measurable time"
    yield Column("tokens_per_second", "number", "tokens/s", meaning, "record.phases.*.tokens_per_second")
    one = "null: one rank, `other`, or an older bundle"
    meaning = f"that the rank which was done first waits for the slowest, mean over iterations; {one}"
    yield Column("wait_longest_seconds", "number", "seconds", meaning, "record.waits.*.longest_seconds")
    meaning = f"that ranks wait for the slowest, mean over ranks and iterations; {one}"
    yield Column("wait_mean_seconds", "number", "seconds", meaning, "record.waits.*.mean_seconds")
    for name in Peaks.__struct_fields__:
        meaning = "as in the runs' table, in this phase; null: not known"
        yield Column(name, "integer", "bytes", meaning, f"record.memory.by_phase.*.{name}")
    meaning = "the least that the layout needs in this phase, computed; null: nothing is known to be needed"
    yield Column("theoretical_minimum_bytes", "integer", "bytes", meaning, "record.memory.floor.by_phase.*")


def _seconds(source: Source) -> float:
    return source.entry.record.iterations.seconds[source.iteration]


def _is_warmup(source: Source) -> bool:
    return source.iteration < source.entry.record.steady_state.warmup


def _is_void(source: Source) -> bool:
    return source.iteration in (source.entry.record.void_iterations or ())


def _iteration_columns() -> Iterator[Column]:
    yield Column("iteration", "integer", "", "from 0, warm-up first", lambda source: source.iteration, True)
    yield Column("seconds", "number", "seconds", "of the slowest rank", _seconds, True)
    yield Column("warmup", "boolean", "", "left out at the start", _is_warmup, True)
    yield Column("void", "boolean", "", "skipped optimizer steps, and so does not count", _is_void, True)
    counted = "the run's figures are made of it"
    yield Column("counted", "boolean", "", counted, lambda one: not _is_warmup(one) and not _is_void(one), True)


def _imported_columns() -> Iterator[Column]:
    yield Column("schema", "text", "", "version of the columns", lambda source: EXPORT_SCHEMA, True, (EXPORT_SCHEMA,))
    yield Column("mark", "text", "", "what the row is", "record.mark", True, (MARK,))
    yield Column("id", "text", "", "of the import", "record.id", True)
    yield Column("path", "text", "", "of its folder, as it was found", "path", True)
    yield Column("tool", "text", "", "that wrote the log", "record.tool", True, get_args(Tool))
    yield Column("model", "text", "", TOLD, "record.told.model", True)
    yield Column("devices", "integer", "", f"of the run in all, {TOLD}", "record.told.devices", True)
    known: dict[str, tuple[str, Kind, str]] = {
        "device": ("device_name", "text", "what the devices are"),
        "algorithm": ("algorithm", "text", "its name"),
        "tool_version": ("tool_version", "text", "of the tool"),
        "source": ("source", "text", "where the log was published"),
        "note": ("note", "text", "what else a reader must know"),
    }
    for field, (name, kind, meaning) in known.items():
        yield Column(name, kind, "", f"{meaning}, {TOLD}; null: not told", f"record.told.{field}")
    yield Column("log_sha256", "text", "", "of the log in the folder", "record.log.sha256", True)
    yield Column("log_bytes", "integer", "bytes", "of the log in the folder", "record.log.bytes", True)
    yield Column("digest", "text", "", "SHA-256 over the folder's evidence", "digest", True)
    for name, meaning in {
        "found": "with a time in the log",
        "warmup": "left out at the start, as the importer said",
        "counted": "those figures are of",
    }.items():
        yield Column(f"steps_{name}", "integer", "", f"steps {meaning}", f"record.steps.{name}", True)
    meaning = "mean of the counted steps, by the tool's own timer"
    yield Column("step_seconds", "number", "seconds", meaning, "record.step_seconds", True)
    for name, unit in {
        "samples_per_second": "samples/s",
        "tokens_per_second": "tokens/s",
        "tokens_per_second_per_device": "tokens/s",
    }.items():
        meaning = "all work over all time of the counted steps; null: neither log nor importer tells the work"
        yield Column(name, "number", unit, meaning, f"record.throughput.{name}")
    for name in ("samples", "prompt_tokens", "response_tokens", "total_tokens"):
        unit = "tokens" if name.endswith("_tokens") else ""
        yield Column(name, "number", unit, "of a step, mean; null: not known", f"record.counts.{name}")
        meaning = f"where `{name}` is from; null: not known"
        yield Column(f"{name}_from", "text", "", meaning, f"record.counts.sources.{name}", values=get_args(From))
    for phase in ALL:
        meaning = f"of a step in {phase.name}, by the tool's own timers; null: not told"
        yield Column(f"{phase.name}_seconds", "number", "seconds", meaning, f"record.phases.{phase.name}.seconds")
    for name in ("peak_allocated_bytes", "peak_reserved_bytes"):
        meaning = "the largest of the counted steps, as the tool logged it; null: not told"
        yield Column(name, "integer", "bytes", meaning, f"record.memory.{name}")
    yield Column("notes", "texts", "", "what a reader of the figures must know", "record.notes", True)
    meaning = "that the user gave it (`suite runs tag`), sorted"
    yield Column("tags", "texts", "", meaning, lambda source: source.tags, True)


_PHASE_IS = "a phase of a run; a run in which no iteration counts has none"
_ITERATION_IS = "a completed iteration of a run, warm-up in; a run that completed none has none"
_IMPORT_IS = "another tool's log, which was not measured here"
TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(RUNS, "run", "a run, whatever became of it", RUN_COLUMNS),
        Table("phases", "phase", _PHASE_IS, (*KEYS, *_phase_columns())),
        Table("iterations", "iteration", _ITERATION_IS, (*KEYS, *_iteration_columns())),
        Table(IMPORTED, "import", _IMPORT_IS, tuple(_imported_columns()), _IMPORTED_KEYS),
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
