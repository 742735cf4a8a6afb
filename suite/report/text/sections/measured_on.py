"""The machines and software that the runs were measured on."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import inline, prose
from suite.report.formatting.grid import Column, Table, grid
from suite.report.text.section import Section, bullets, few

_COLUMNS = (Column("fact", False), Column("value", False))


def _blocks(model: ReportModel) -> Iterator[str]:
    for machine in model.machines:
        yield f"### Machine {machine.letter}" if len(model.machines) > 1 else ""
        rows = tuple((inline(fact.name), "; ".join(prose(value) for value in fact.values)) for fact in machine.facts)
        yield grid(Table(_COLUMNS, rows))
        notes = few([f"{inline(fact.name)}: {prose(note)}" for fact in machine.notes for note in fact.values])
        if notes:
            yield "Notes:"
            yield bullets(notes)


SECTION = Section("Measured on", _blocks)
