"""Peak memory against the least that the layout needs, of whole iterations and of each phase."""

from collections.abc import Callable, Iterator

from suite.report.facts.costs import MemoryUse
from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import GIB, UNKNOWN, gib, interval, number, percent
from suite.report.text.columns import LABEL, label
from suite.report.text.section import Block, Picture, Section
from suite.spec.phases import ALL_NAMES
from suite.stats.intervals import Interval

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


def _blocks(model: ReportModel) -> Iterator[Block]:
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
        (Column("floor/peak %"), _floor_share),
    ]
    if any(memory.allocation_retries for _, memory in used):
        figures.append((Column("retries"), lambda memory: number(memory.allocation_retries, 1)))
    words = [one for one in figures if not one[0].right and len({one[1](memory) for _, memory in used}) == 1]
    alike = [f"{column.title} {show(used[0][1])}" for column, show in words]
    figures = [figure for figure in figures if figure not in words]
    rows = tuple((label(row), *(show(memory) for _, show in figures)) for row, memory in used)
    notes = [f"All rows: {', '.join(alike)}."] if alike else []
    notes += [_BELOW_FLOOR] if any(_is_below_floor(memory) for _, memory in used) else []
    notes += [_RESIDENT] if any(row.setting.device == "cpu" for row, _ in used) else []
    notes += [_WHOLE] if any(memory.peak_is in ("all processes", "whole device") for _, memory in used) else []
    yield Table((LABEL[0], *(column for column, _ in figures)), rows, tuple(notes))


def _in_gib(peaks: Interval) -> str:
    return interval(peaks.scaled(1 / GIB), bound_digits=1)


def _floor_share(memory: MemoryUse) -> str:
    share = percent(memory.efficiency)
    return f"{share} (!)" if _is_below_floor(memory) else share


def _is_below_floor(memory: MemoryUse) -> bool:
    return (memory.efficiency or 0.0) > 1


def _by_phase(model: ReportModel) -> Iterator[Block]:
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


SECTION = Section("Memory", _blocks, Picture("memory", "Peak memory against the theoretical floor"))
BY_PHASE = Section("Memory by phase", _by_phase, is_beside=True)
