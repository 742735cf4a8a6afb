"""What stands around the figures: the work, the stacks and machines, how runs were read, and how figures are made."""

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.formatting.escape import inline, prose
from suite.report.formatting.grid import Column, Table
from suite.report.text.section import Block, Heading, Section, bullets, few

_FACTS = (Column("fact", False), Column("value", False))


def _work(model: ReportModel) -> Iterator[Block]:
    """One iteration of each workload, and where the work of trainers differs that stand beside nothing else."""
    yield bullets(f"{inline(fact.name)}: {prose(fact.text, 800)}." for fact in model.work)
    if {one.family for one in model.models} - {"GPT-2"}:
        yield "The models' families and shapes:"
        yield bullets(f"{one.family}: {prose(one.text, 800)}." for one in model.models)
    beside = {side.row.number for group in model.beside for side in group.sides}
    apart = model.differences_of({row.number for row in model.rows} - beside)
    differences = few([f"{inline(one.backend)} ({', '.join(one.rows)}): {prose(one.text)}." for one in apart])
    if differences:
        others = "other " if len(apart) < len(model.work_differences) else ""
        yield f"Where the work of {others}trainers differs from the suite's own iteration:"
        yield bullets(differences)


def _stacks(model: ReportModel) -> Iterator[Block]:
    """What they say of themselves, and what the records say of their figures."""
    for machine in model.machines:
        where = f" on machine {machine.letter}" if len(model.machines) > 1 else ""
        for fact in machine.notes:
            yield f"{inline(fact.name)}{where}:"
            yield bullets(few([prose(note) for note in fact.values]))
    if model.recorded_conventions:
        yield "How the runs' own figures are made, as their records tell:"
        yield bullets(map(prose, model.recorded_conventions))


def _machines(model: ReportModel) -> Iterator[Block]:
    for machine in model.machines:
        yield Heading(f"Machine {machine.letter}") if len(model.machines) > 1 else ""
        rows = tuple((inline(fact.name), "; ".join(prose(value) for value in fact.values)) for fact in machine.facts)
        yield Table(_FACTS, rows)


WORK = Section("Work", _work, is_beside=True)
STACKS = Section("Stacks and records", _stacks, is_beside=True)
CAVEATS = Section(
    "Caveats", lambda model: (bullets(few([prose(line) for line in model.caveats])),), needs_rows=False, is_folded=True
)
MEASURED_ON = Section("Measured on", _machines, is_folded=True)
CONVENTIONS = Section("Conventions", lambda model: (bullets(model.conventions),), is_folded=True)
