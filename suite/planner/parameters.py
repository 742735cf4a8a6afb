"""The planner's constants: what was thought of each before a row was seen, what the fit made of it, and its errors.

Priors are data, ``manifests/planner_priors.json``: each constant's centre and spread, with the document or the physics
that it comes from and the date from which it has stood. A fit moves values, never priors.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import Field

from suite.spec.base import Frozen, UsageError
from suite.spec.catalogue import data_root

FILE, PRIORS_FILE = "planner_parameters.json", "planner_priors.json"


class Prior(Frozen):
    """A positive constant thought to lie within a factor exp(``spread``) of ``centre``, two times in three."""

    centre: float
    spread: float
    meaning: str
    source: str


class Priors(Frozen):
    """All of them by the stage of the fit that learns them, and how far stacks differ (deviations of logarithms)."""

    frozen: str = Field(description="the date from which they have stood")
    steps: dict[str, Prior] = Field(description="of training steps, learnt from published ones")
    memory: dict[str, Prior]
    iterations: dict[str, Prior] = Field(description="of what an RL iteration adds, learnt from published ones")
    levels: dict[str, float] = Field(description="levels at which stacks differ in a training step")
    stacks: dict[str, float] = Field(description="a stack's own effect on a phase of an iteration")
    spreads: dict[str, float] = Field(description="how far sources lie apart by kind, in relation to each other")
    source: str = Field(description="of levels, stacks and spreads")

    @property
    def every(self) -> dict[str, Prior]:
        return {**self.steps, **self.memory, **self.iterations}


class Band(Frozen):
    """An 80 % band: four of five measured values that no fit had seen lie between ``low`` and ``high`` times what was
    predicted. ``rows`` of which it was made, in how many ``groups`` that err together, the ``median`` and ``p90`` of
    their absolute relative errors, and the share of rows ``held`` by a band that was made without them."""

    low: float
    high: float
    rows: int
    groups: int
    median: float
    p90: float
    held: float | None = None


class Bands(Frozen):
    """Of one kind of prediction: for stacks of which published rows are in the fit, and for all others."""

    known: Band
    new: Band


class Provenance(Frozen):
    """Where the numbers come from."""

    fitted: str = Field(description="date")
    rows: int
    sources: dict[str, int] = Field(description="published rows used, by source")
    digest: str = Field(description="SHA-256 of the rows that were read")
    priors: str = Field(description="SHA-256 of the priors that the fit began with")


class Learnt(Frozen):
    """How sure one is of constants: the covariance of their logarithms, and the ``noise`` beside them of a prediction.

    ``names`` are "value NAME" of a constant and "phase NAME" of a factor on a phase.
    """

    names: tuple[str, ...]
    covariance: tuple[tuple[float, ...], ...]
    noise: float
    configurations: int = Field(default=0, description="of own runs that taught them; 0: none")
    runs: int = 0


class Parameters(Frozen):
    """Fitted values, effects of stacks (log of a factor on time) and the errors of rows that no fit had seen."""

    schema_: str = Field(default="suite/planner/2", alias="schema")
    provenance: Provenance
    values: dict[str, float]
    effects: dict[str, dict[str, float]] = Field(description="level or phase -> group -> log factor")
    bands: dict[str, Bands] = Field(description="by kind of prediction")
    stacks: tuple[str, ...] = Field(description="stack and device generation of every row of an iteration in the fit")
    phases: dict[str, float] = Field(default={}, description="factors on phases learnt from the user's own runs")
    memory_factor: float = Field(default=1.0, description="factor on peak memory learnt from the user's own runs")
    memory_band: Band | None = Field(default=None, description="of peak memory after the user's own runs")
    learnt: Learnt | None = Field(default=None, description="how sure the user's own runs make one; null: none taught")

    def effect(self, groups: Mapping[str, str]) -> float:
        """Sum of the effects of a stack's groups; a group never seen has none."""
        return sum(self.effects.get(level, {}).get(group, 0.0) for level, group in groups.items())

    def band(self, kind: str, stack: str, architecture: str) -> Band:
        """The band that applies to a stack on a generation of devices: the wide one unless its rows are in the fit."""
        if kind == "memory" and self.memory_band is not None:
            return self.memory_band
        found = self.bands[kind]
        return found.known if f"{stack}|{architecture}" in self.stacks else found.new


@lru_cache(maxsize=1)
def load_priors() -> Priors:
    """What was thought before any row. UsageError where the file is missing or damaged."""
    return Priors.model_validate(_read(PRIORS_FILE))


@lru_cache(maxsize=1)
def load_parameters() -> Parameters:
    """The fitted parameters that come with the suite. UsageError where the file is missing or damaged."""
    return Parameters.model_validate(_read(FILE))


def _read(name: str) -> Any:
    path = data_root() / name
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"the planner's parameters in {path} cannot be read: {error}; `make planner-fit`") from error
