"""The sections of the report, in its order."""

from itertools import chain

from suite.report.formatting.escape import prose
from suite.report.formatting.numbers import few
from suite.report.text.section import Section, bullets
from suite.report.text.sections import around, costs, generation, imported, ranking, rates

SECTIONS = (
    Section("Ranking", lambda model: chain(ranking.ranked(model), ranking.side_by_side(model))),
    Section("Throughput", rates.throughput, "throughput"),
    Section("Phases", costs.phases, "phases"),
    Section("Scaling", rates.scaling, "scaling"),
    Section("Memory", costs.memory, "memory"),
    Section("Energy", costs.energy, is_beside=True),
    Section("Failures", rates.failures),
    Section("Imported, not measured here", imported.imported_rows, needs_rows=False),
    Section("Generation and weight sync", generation.generation, is_beside=True),
    Section("Asynchronous trainers", generation.asynchronous, is_beside=True),
    Section("Predicted and measured", rates.predicted, "predicted", is_beside=True),
    Section("Memory by phase", costs.memory_by_phase, is_beside=True),
    Section("Lengths and padding", generation.lengths, is_beside=True),
    Section("Network", around.network, is_beside=True),
    Section("Work", around.work, is_beside=True),
    Section("Stacks and records", around.stacks, is_beside=True),
    Section("Digests", around.digests, is_folded=True, is_beside=True),
    Section("Caveats", lambda model: [bullets(few(list(map(prose, model.caveats))))], needs_rows=False, is_folded=True),
    Section("Measured on", around.machines, is_folded=True),
    Section("Conventions", lambda model: [bullets(model.conventions)], is_folded=True),
    Section("Reproduce", around.commands, is_folded=True),
)
