"""The machines and software that the runs were measured on."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import inline, prose
from suite.report.formatting.grid import Column, Table
from suite.report.text.section import Block, Heading, Section

_COLUMNS = (Column("fact", False), Column("value", False))


def _blocks(model: ReportModel) -> Iterator[Block]:
    for machine in model.machines:
        yield Heading(f"Machine {machine.letter}") if len(model.machines) > 1 else ""
        rows = tuple((inline(fact.name), "; ".join(prose(value) for value in fact.values)) for fact in machine.facts)
        yield Table(_COLUMNS, rows)


SECTION = Section("Measured on", _blocks, is_folded=True)
