"""The sections of the report, in its order."""

from suite.report.text.section import Section
from suite.report.text.sections import (
    around,
    energy,
    failures,
    generation,
    imported,
    lengths,
    memory,
    network,
    phases,
    predicted,
    ranking,
    reproduce,
    scaling,
    side_by_side,
    throughput,
)

BY_NAME: dict[str, Section] = {
    "ranking": ranking.SECTION,
    "side_by_side": side_by_side.SECTION,
    "apart": throughput.APART,
    "throughput": throughput.SECTION,
    "phases": phases.SECTION,
    "without_scoring": throughput.WITHOUT_SCORING,
    "scaling": scaling.SECTION,
    "memory": memory.SECTION,
    "energy": energy.SECTION,
    "failures": failures.SECTION,
    "imported": imported.SECTION,
    "generation": generation.SECTION,
    "asynchronous": generation.ASYNCHRONOUS,
    "predicted": predicted.SECTION,
    "memory_by_phase": memory.BY_PHASE,
    "lengths": lengths.SECTION,
    "network": network.SECTION,
    "work": around.WORK,
    "stacks": around.STACKS,
    "caveats": around.CAVEATS,
    "measured_on": around.MEASURED_ON,
    "conventions": around.CONVENTIONS,
    "reproduce": reproduce.SECTION,
}
SECTIONS = tuple(BY_NAME.values())
