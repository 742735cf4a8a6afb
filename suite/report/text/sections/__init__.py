"""The sections of the report, in its order."""

from suite.report.text.section import Section
from suite.report.text.sections import around, costs, generation, imported, ranking, rates

BY_NAME: dict[str, Section] = {
    "ranking": ranking.RANKING,
    "side_by_side": ranking.BESIDE,
    "apart": rates.ALONE,
    "throughput": rates.THROUGHPUT,
    "phases": costs.PHASES,
    "without_scoring": rates.WITHOUT_SCORING,
    "scaling": rates.SCALING,
    "memory": costs.MEMORY,
    "energy": costs.ENERGY,
    "failures": rates.FAILURES,
    "imported": imported.SECTION,
    "generation": generation.GENERATION,
    "asynchronous": generation.ASYNCHRONOUS,
    "predicted": rates.PREDICTED,
    "memory_by_phase": costs.MEMORY_BY_PHASE,
    "lengths": generation.LENGTHS,
    "network": around.NETWORK,
    "work": around.WORK,
    "stacks": around.STACKS,
    "caveats": around.CAVEATS,
    "measured_on": around.MEASURED_ON,
    "conventions": around.CONVENTIONS,
    "reproduce": around.REPRODUCE,
}
SECTIONS = tuple(BY_NAME.values())
