"""Where the time of an iteration goes, peak memory against the least that the layout needs, and GPU board energy."""

from collections.abc import Callable, Iterator

from suite.report.facts.costs import EnergyUse, Idle, MemoryUse
from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import inline, prose
from suite.report.formatting.grid import Column, Notes, Table
from suite.report.formatting.numbers import GIB, UNKNOWN, gib, interval, number, percent
from suite.report.text.columns import LABEL, label, seconds, shown, table_of
from suite.report.text.section import Block, Picture, Section
from suite.spec.phases import ALL_NAMES
from suite.stats.intervals import Interval

#: Columns that a trainer's timers give at most.
_MOST_PARTS = 40
_BELOW_FLOOR = "(!) A peak below the floor, although no correct run needs less: doubt how the memory was measured."
_RESIDENT = (
    "On a CPU the peak is a process's resident set, which wanders with malloc's bookkeeping, most of all on several "
    "ranks: read floor/peak there as an indication."
)
_WHOLE = (
    "All processes, whole device: an even share of what a trainer's own processes hold on a node, libraries included, "
    "or what the whole device uses. It is held against no floor."
)
#: A column, and what it shows of the memory that a row used.
_Figure = tuple[Column, Callable[[MemoryUse], str]]


def _phases(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.phases]
    if rows:
        measured = {phase.name for row in rows for phase in row.phases}
        columns = [(Column(name), seconds(name, lambda row: row.phases)) for name in ALL_NAMES if name in measured]
        columns.append((Column("iteration"), lambda row: number(row.iteration_seconds)))
        yield "Seconds per iteration, and share of it in percent."
        if any(row.setting.asynchronous for row in rows):
            yield (
                "Of asynchronous rows the seconds of the side that trains, without shares; generate is what it waits "
                "for samples."
            )
        if any(row.idle for row in rows):
            columns.append((Column("idle %"), shown(lambda row: row.idle, _idle)))
            yield (
                "Idle: what ranks, on average, wait at the end of phases for the slowest one, barriers included, and "
                "the phase at whose end they wait longest."
            )
        yield table_of([LABEL, *columns], rows)
    if rows := [row for row in model.rows if row.parts]:
        names = list(dict.fromkeys(cost.name for row in rows for cost in row.parts))[:_MOST_PARTS]
        columns = [(Column(inline(name)), seconds(name, lambda row: row.parts)) for name in names]
        yield (
            "What trainers time within phases, in seconds per iteration of the slowest rank, and share of the "
            "iteration:"
        )
        yield table_of([LABEL, *columns], rows)


def _idle(idle: Idle) -> str:
    return percent(idle.share) + (f", {inline(idle.most)}" if idle.seconds else "")


def _memory(model: ReportModel) -> Iterator[Block]:
    used = [(row, row.memory) for row in model.rows if row.memory]
    if not used:
        return
    figures: list[_Figure] = [
        (Column("peak GiB"), lambda memory: gib(memory.peak_bytes)),
        (Column("peak is", False), lambda memory: memory.peak_is),
    ]
    if any(memory.run_peak_bytes.low is not None for _, memory in used):
        figures.append((Column("mean of runs [95 %]"), lambda use: _in_gib(use.run_peak_bytes)))
    if any(memory.peak_is == "reserved" for _, memory in used):
        figures += [
            (Column("allocated GiB"), lambda memory: gib(memory.allocated_bytes)),
            (Column("device GiB"), lambda memory: gib(memory.device_bytes)),
        ]
    figures += [
        (Column("floor GiB"), lambda memory: gib(memory.floor_bytes)),
        (Column("floor set by", False), lambda memory: inline(memory.floor_phase or UNKNOWN)),
        (Column("floor/peak %"), lambda it: percent(it.efficiency) + " (!)" * _is_below_floor(it)),
    ]
    if any(memory.allocation_retries for _, memory in used):
        figures.append((Column("retries"), lambda memory: number(memory.allocation_retries, 1)))
    words = [one for one in figures if not one[0].right and len({one[1](memory) for _, memory in used}) == 1]
    alike = [f"{column.title} {show(used[0][1])}" for column, show in words]
    figures = [figure for figure in figures if figure not in words]
    notes = [f"All rows: {', '.join(alike)}."] if alike else []
    notes += [_BELOW_FLOOR] if any(_is_below_floor(memory) for _, memory in used) else []
    notes += [_RESIDENT] if any(row.setting.device == "cpu" for row, _ in used) else []
    notes += [_WHOLE] if any(memory.peak_is in ("all processes", "whole device") for _, memory in used) else []
    columns = [(column, shown(lambda row: row.memory, show)) for column, show in figures]
    yield table_of([LABEL, *columns], [row for row, _ in used], notes)


def _in_gib(peaks: Interval) -> str:
    return interval(peaks.scaled(1 / GIB), bound_digits=1)


def _is_below_floor(memory: MemoryUse) -> bool:
    return (memory.efficiency or 0.0) > 1


def _memory_by_phase(model: ReportModel) -> Iterator[Block]:
    used = [(row, row.memory) for row in model.rows if row.memory and row.memory.by_phase]
    names = [name for name in ALL_NAMES if any(one.name == name for _, memory in used for one in memory.by_phase)]
    if names:
        yield (
            "GiB in use at the peak of each phase (allocated on a GPU, resident on a CPU): mean of the runs' peaks "
            "[95 %], and the phase's own floor over the greatest of them in percent."
        )
        rows = tuple((label(row), *(_phase_cell(memory, name) for name in names)) for row, memory in used)
        yield Table((LABEL[0], *map(Column, names)), rows)


def _phase_cell(memory: MemoryUse, name: str) -> str:
    for one in memory.by_phase:
        if one.name == name:
            floor = "" if one.efficiency is None else f" ({percent(one.efficiency)})"
            return _in_gib(one.run_peak_bytes) + floor
    return UNKNOWN


def _energy(model: ReportModel) -> Iterator[Block]:
    """A figure that is not valid says why."""
    notes = Notes()
    rows = [row for row in model.rows if row.energy]

    def joules(energy: EnergyUse) -> str:
        figure = number(energy.joules_per_sample)
        reasons = "; ".join(energy.reasons) or "not all runs were sampled"
        return figure if energy.valid else f"{figure} {notes.mark('Not valid: ' + prose(reasons))}"

    if rows:
        yield "GPU board energy."
        yield table_of([LABEL, (Column("J/sample"), shown(lambda row: row.energy, joules))], rows, notes)


PHASES = Section("Phases", _phases, Picture("phases", "Share of an iteration by phase"))
MEMORY = Section("Memory", _memory, Picture("memory", "Peak memory against the theoretical floor"))
MEMORY_BY_PHASE = Section("Memory by phase", _memory_by_phase, is_beside=True)
ENERGY = Section("Energy", _energy, is_beside=True)
