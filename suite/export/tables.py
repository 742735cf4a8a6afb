"""The tables that results are exported as, and the rows that runs give in them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from suite.bundle.imported.record import TOLD, ImportedMemory, ImportedRow, ImportedThroughput
from suite.bundle.parts import Peaks
from suite.bundle.record import Record, Wait
from suite.export.columns import KEYS, SCHEMA, TAGS, Column, column, columns
from suite.export.runs import RUN_COLUMNS
from suite.report.facts.entry import Entry
from suite.spec.base import UsageError
from suite.spec.names import nearest
from suite.spec.phases import ALL_NAMES

Row = dict[str, Any]
RUNS, IMPORTED = "runs", "imported"


@dataclass(frozen=True)
class Table:
    """``noun``: what a row is."""

    name: str
    noun: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def _phase_columns(phase: str) -> tuple[Column, ...]:
    order = "in the order of an iteration; `other` is what an iteration takes beyond its timed phases"
    within = "95 % bound from the run's own iterations; null: the phase took no time, one iteration, an older bundle"
    mean = "mean over the counted iterations, of the slowest rank each"
    tokens = "of the tokens that the phase is about; null: it is about none, or took no measurable time"
    least = "the least that the layout needs in this phase, computed"
    return (
        Column("phase", "text", order, lambda _: phase, True, ALL_NAMES),
        replace(column(f"record.phases.{phase}.seconds", mean), required=True),  # a phase that is not known has no row
        column(f"record.phase_intervals.{phase}.low", f"lower {within}", "seconds_low"),
        column(f"record.phase_intervals.{phase}.high", f"upper {within}", "seconds_high"),
        column(f"record.phases.{phase}.share"),
        column(f"record.phases.{phase}.tokens_per_second", tokens),
        *columns(f"record.waits.{phase}", Wait.__struct_fields__, prefix="wait_"),
        *columns(f"record.memory.by_phase.{phase}", Peaks.__struct_fields__, "as in the runs' table, in this phase"),
        column(f"record.memory.floor.by_phase.{phase}", least, "theoretical_minimum_bytes"),
    )


_BY_PHASE = {phase: _phase_columns(phase) for phase in ALL_NAMES}


class _Iteration(NamedTuple):
    iteration: int
    seconds: float
    warmup: bool
    void: bool
    counted: bool


def _iterations(record: Record) -> Iterator[_Iteration]:
    for index, seconds in enumerate(record.iterations.seconds):
        is_warmup = index < record.steady_state.warmup
        is_void = index in (record.void_iterations or ())
        yield _Iteration(index, seconds, is_warmup, is_void, not is_warmup and not is_void)


_ITERATION_COLUMNS = (
    column("iteration", "from 0, warm-up first", of=_Iteration),
    column("seconds", "of the slowest rank", of=_Iteration),
    column("warmup", "left out at the start", of=_Iteration),
    column("void", "skipped optimizer steps, and so does not count", of=_Iteration),
    column("counted", "the run's figures are made of it", of=_Iteration),
)
_told = partial(column, of=ImportedRow)


def _imported_counts() -> Iterator[Column]:
    for name in ("samples", "prompt_tokens", "response_tokens", "total_tokens"):
        yield _told(f"record.counts.{name}", "of a step, mean")
        yield _told(f"record.counts.sources.{name}", f"where `{name}` is from", f"{name}_from")


_RATE = "all work over all time of the counted steps"
_TIMER = "of a step, by the tool's own timers"
_LARGEST = "the largest of the counted steps, as the tool logged it"
_IMPORTED_COLUMNS = (
    SCHEMA,
    _told("record.mark", "what the row is"),
    _told("record.id", "of the import"),
    _told("path", "of its folder, as it was found"),
    _told("record.tool", "that wrote the log"),
    *columns("record.told", ("model", "devices"), TOLD, of=ImportedRow),
    _told("record.told.device", f"what the devices are, {TOLD}", "device_name"),
    *columns("record.told", ("algorithm", "tool_version", "source", "note"), TOLD, of=ImportedRow),
    *columns("record.log", ("sha256", "bytes"), "of the log in the folder", "log_", ImportedRow),
    _told("digest", "SHA-256 over the folder's evidence"),
    *columns("record.steps", ("found", "warmup", "counted"), prefix="steps_", of=ImportedRow),
    _told("record.step_seconds"),
    *columns("record.throughput", ImportedThroughput.model_fields, _RATE, of=ImportedRow),
    *_imported_counts(),
    *(_told(f"record.phases.{name}.seconds", _TIMER, f"{name}_seconds") for name in ALL_NAMES),
    *columns("record.memory", ImportedMemory.model_fields, _LARGEST, of=ImportedRow),
    _told("record.notes"),
    TAGS,
)


TABLES: Mapping[str, Table] = {
    table.name: table
    for table in (
        Table(RUNS, "run", RUN_COLUMNS),
        Table("phases", "phase", (*KEYS, *_BY_PHASE[ALL_NAMES[0]])),
        Table("iterations", "iteration", (*KEYS, *_ITERATION_COLUMNS)),
        Table(IMPORTED, "import", _IMPORTED_COLUMNS),
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
    known = tags or {}
    for row in sorted(imported, key=lambda row: (row.record.id, row.path)) if table.name == IMPORTED else ():
        yield _row(table.columns, row) | {"tags": list(known.get(row.path, ()))}
    for entry in sorted(entries, key=lambda entry: (entry.record.run.id, entry.path)):
        keys = _row(KEYS, entry)
        if table.name == RUNS:
            yield keys | _row(RUN_COLUMNS[len(KEYS) :], entry) | {"tags": list(known.get(entry.path, ()))}
        if table.name == "phases":
            timed = [own for phase, own in _BY_PHASE.items() if getattr(entry.record.phases, phase, None) is not None]
            yield from (keys | _row(own, entry) for own in timed)
        if table.name == "iterations":
            yield from (keys | _row(_ITERATION_COLUMNS, one) for one in _iterations(entry.record))


def _row(columns: Iterable[Column], of: Any) -> Row:
    return {column.name: column.value(of) for column in columns}
