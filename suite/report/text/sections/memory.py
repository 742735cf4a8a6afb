"""Peak memory against the least that the layout needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from suite.report.facts.costs import MemoryUse
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column, Table, grid
from suite.report.formatting.numbers import GIB, UNKNOWN, gib, interval, number, percent
from suite.report.text.columns import IDENTITY, Shown
from suite.report.text.section import Picture, Section
from suite.spec.phases import ALL_NAMES

_BELOW_FLOOR = "(!) A peak below the floor, although no correct run needs less: doubt how the memory was measured."
_RESIDENT = (
    "On a CPU the peak is a process's resident set, which wanders with malloc's bookkeeping, most of all on several "
    "ranks: read floor/peak there as an indication."
)
_WHOLE = (
    "All processes, whole device: of trainers with processes of their own, an even share of what these hold on a node "
    "with their libraries, or what the whole device uses. It is held against no floor and is no peak like the others."
)
#: As ``Shown``, of the memory that a row used.
_Figure = tuple[Column, Callable[[MemoryUse], str]]


def _blocks(model: ReportModel) -> Iterator[str]:
    used = [(row, row.memory) for row in model.rows if row.memory]
    if used:
        yield grid(_table(used))
    by_phase = [(row, memory) for row, memory in used if memory.by_phase]
    if by_phase:
        yield (
            "GiB in use at the peak of each phase (allocated on a GPU, resident on a CPU): the mean of the runs' peaks "
            "with its 95 % interval, and the phase's own floor over the greatest of them."
        )
        yield grid(_phase_table(by_phase))


def _table(used: list[tuple[Row, MemoryUse]]) -> Table:
    figures: list[_Figure] = [
        (Column("peak GiB"), lambda memory: gib(memory.peak_bytes)),
        (Column("peak is", False), lambda memory: memory.peak_is),
    ]
    if any(memory.run_peak_bytes.low is not None for _, memory in used):
        figures.append(
            (
                Column("GiB, mean of runs [95 %]"),
                lambda use: interval(use.run_peak_bytes.scaled(1 / GIB), bound_digits=1),
            )
        )
    if any(memory.peak_is == "reserved" for _, memory in used):
        figures += [
            (Column("allocated GiB"), lambda memory: gib(memory.allocated_bytes)),
            (Column("device GiB"), lambda memory: gib(memory.device_bytes)),
        ]
    figures += [
        (Column("floor GiB"), lambda memory: gib(memory.floor_bytes)),
        (Column("set by", False), lambda memory: inline(memory.floor_phase or UNKNOWN)),
        (Column("floor/peak %"), _floor_share),
    ]
    if any(memory.allocation_retries for _, memory in used):
        figures.append((Column("retries"), lambda memory: number(memory.allocation_retries, 1)))
    identity: tuple[Shown, ...] = IDENTITY
    rows = tuple((*(show(row) for _, show in identity), *(show(memory) for _, show in figures)) for row, memory in used)
    columns = (*(column for column, _ in identity), *(column for column, _ in figures))
    notes = [_BELOW_FLOOR] if any(_is_below_floor(memory) for _, memory in used) else []
    notes += [_RESIDENT] if any(row.setting.device == "cpu" for row, _ in used) else []
    notes += [_WHOLE] if any(memory.peak_is in ("all processes", "whole device") for _, memory in used) else []
    return Table(columns, rows, tuple(notes))


def _phase_table(used: list[tuple[Row, MemoryUse]]) -> Table:
    names = [name for name in ALL_NAMES if any(one.name == name for _, memory in used for one in memory.by_phase)]
    columns = (*(column for column, _ in IDENTITY), *map(Column, names))
    rows = tuple(
        (*(show(row) for _, show in IDENTITY), *(_phase_cell(memory, name) for name in names)) for row, memory in used
    )
    return Table(columns, rows)


def _phase_cell(memory: MemoryUse, name: str) -> str:
    for one in memory.by_phase:
        if one.name == name:
            floor = "" if one.efficiency is None else f" ({percent(one.efficiency)} %)"
            return interval(one.run_peak_bytes.scaled(1 / GIB), bound_digits=1) + floor
    return UNKNOWN


def _floor_share(memory: MemoryUse) -> str:
    share = percent(memory.efficiency)
    return f"{share} (!)" if _is_below_floor(memory) else share


def _is_below_floor(memory: MemoryUse) -> bool:
    return (memory.efficiency or 0.0) > 1


SECTION = Section("Memory", _blocks, Picture("memory", "Peak memory against the theoretical floor"))
