"""The phases of an iteration, declared once in ``suite/worker/phases.json`` for the driver and the worker alike."""

from collections.abc import Sequence
from dataclasses import dataclass

from suite.spec.base import worker_json


@dataclass(frozen=True)
class PhaseSpec:
    """One phase. ``tokens``: names of the counts whose sum is the tokens that go through it in one iteration.
    ``optional``: it is left out of records without it, as of those that were written before it came."""

    name: str
    label: str
    colour: str
    tokens: Sequence[str] = ()
    optional: bool = False


_DECLARED = worker_json("phases.json")
#: What workers time, in the order of an iteration.
TIMED: tuple[PhaseSpec, ...] = tuple(PhaseSpec(**entry) for entry in _DECLARED["phases"])
#: What an iteration takes beyond its timed phases; the driver computes it.
REMAINDER: PhaseSpec = PhaseSpec(**_DECLARED["remainder"])
ALL: tuple[PhaseSpec, ...] = (*TIMED, REMAINDER)
#: Names in order, as events carry them, and those that a record has.
TIMED_NAMES: tuple[str, ...] = tuple(phase.name for phase in TIMED)
ALL_NAMES: tuple[str, ...] = tuple(phase.name for phase in ALL)
