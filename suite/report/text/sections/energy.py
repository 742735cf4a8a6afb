"""GPU board energy; a figure that is not valid says why."""

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import prose
from suite.report.formatting.grid import Column, Notes
from suite.report.formatting.numbers import number
from suite.report.text.columns import LABEL, table_of
from suite.report.text.section import Block, Section


def _blocks(model: ReportModel) -> Iterator[Block]:
    notes = Notes()
    rows = [row for row in model.rows if row.energy]

    def joules(row: Row) -> str:
        assert row.energy is not None, "only rows with energy are shown"
        figure = number(row.energy.joules_per_sample)
        reasons = "; ".join(row.energy.reasons) or "not all runs were sampled"
        return figure if row.energy.valid else f"{figure} {notes.mark('Not valid: ' + prose(reasons))}"

    if rows:
        yield "GPU board energy."
        yield table_of([LABEL, (Column("J/sample"), joules)], rows, notes)


SECTION = Section("Energy", _blocks, is_beside=True)
