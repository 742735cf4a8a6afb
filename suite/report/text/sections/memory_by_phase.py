"""Memory at the peak of each phase."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.costs import MemoryUse
from suite.report.facts.model import ReportModel
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import GIB, UNKNOWN, interval, percent
from suite.report.text.columns import LABEL, label
from suite.report.text.section import Block, Section
from suite.spec.phases import ALL_NAMES


def _blocks(model: ReportModel) -> Iterator[Block]:
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
            return interval(one.run_peak_bytes.scaled(1 / GIB), bound_digits=1) + floor
    return UNKNOWN


SECTION = Section("Memory by phase", _blocks, is_beside=True)
