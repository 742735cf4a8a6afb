"""What one iteration of each workload does, and where the work of trainers differs that stand beside nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import inline, prose
from suite.report.text.section import Block, Section, bullets, few


def _blocks(model: ReportModel) -> Iterator[Block]:
    yield bullets(f"{inline(fact.name)}: {prose(fact.text, 800)}." for fact in model.work)
    if {one.family for one in model.models} - {"GPT-2"}:
        yield "The models' families and shapes:"
        yield bullets(f"{one.family}: {prose(one.text, 800)}." for one in model.models)
    told = {side.row.number for group in model.beside for side in group.sides}
    apart = model.differences_of({row.number for row in model.rows} - told)
    differences = few([f"{inline(one.backend)} ({', '.join(one.rows)}): {prose(one.text)}." for one in apart])
    if differences:
        others = "other " if len(apart) < len(model.work_differences) else ""
        yield f"Where the work of {others}trainers differs from the suite's own iteration:"
        yield bullets(differences)


SECTION = Section("Work", _blocks, is_beside=True)
