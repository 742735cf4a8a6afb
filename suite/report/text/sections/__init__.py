"""The sections of the report, in its order."""

from suite.report.formatting.escape import prose
from suite.report.formatting.numbers import few
from suite.report.text.section import Section, bullets
from suite.report.text.sections import around, costs, generation, imported, ranking, rates

BY_NAME: dict[str, Section] = {
    "ranking": Section("Ranking", ranking.ranked),
    "side_by_side": Section(None, ranking.side_by_side),
    "apart": Section(None, rates.alone),
    "throughput": Section("Throughput", rates.throughput, "throughput"),
    "phases": Section("Phases", costs.phases, "phases"),
    "without_scoring": Section(None, rates.without_scoring),
    "scaling": Section("Scaling", rates.scaling, "scaling"),
    "memory": Section("Memory", costs.memory, "memory"),
    "energy": Section("Energy", costs.energy, is_beside=True),
    "failures": Section("Failures", rates.failures),
    "imported": Section("Imported, not measured here", imported.imported_rows, needs_rows=False),
    "generation": Section("Generation and weight sync", generation.generation, is_beside=True),
    "asynchronous": Section("Asynchronous trainers", generation.asynchronous, is_beside=True),
    "predicted": Section("Predicted and measured", rates.predicted, is_beside=True),
    "memory_by_phase": Section("Memory by phase", costs.memory_by_phase, is_beside=True),
    "lengths": Section("Lengths and padding", generation.lengths, is_beside=True),
    "network": Section("Network", around.network, is_beside=True),
    "work": Section("Work", around.work, is_beside=True),
    "stacks": Section("Stacks and records", around.stacks, is_beside=True),
    "caveats": Section(
        "Caveats", lambda model: [bullets(few(list(map(prose, model.caveats))))], needs_rows=False, is_folded=True
    ),
    "measured_on": Section("Measured on", around.machines, is_folded=True),
    "conventions": Section("Conventions", lambda model: [bullets(model.conventions)], is_folded=True),
    "reproduce": Section("Reproduce", around.commands, is_folded=True),
}
SECTIONS = tuple(BY_NAME.values())
