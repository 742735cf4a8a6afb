"""What the stacks tell of themselves, and the records of their figures."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import inline, prose
from suite.report.text.section import Block, Section, bullets, few


def _blocks(model: ReportModel) -> Iterator[Block]:
    for machine in model.machines:
        where = f" on machine {machine.letter}" if len(model.machines) > 1 else ""
        for fact in machine.notes:
            yield f"{inline(fact.name)}{where}:"
            yield bullets(few([prose(note) for note in fact.values]))
    if model.recorded_conventions:
        yield "How the runs' own figures are made, as their records tell:"
        yield bullets(map(prose, model.recorded_conventions))


SECTION = Section("Stacks and records", _blocks, is_beside=True)
