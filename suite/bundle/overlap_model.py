"""What a record holds of generation beside training."""

from typing import Literal

from pydantic import Field

from suite.bundle.amounts import Peaks, Seconds
from suite.spec.base import Frozen


class OverlapSide(Frozen):
    """One side of a split run, per counted iteration: of each phase the slowest rank of the side."""

    ranks: int = Field(gt=0)
    busy_seconds: Seconds = Field(
        description="in the side's own phases but for waiting: no share of an iteration; of an asynchronous run what "
        "its roles worked, mean over the side's ranks"
    )
    waiting_seconds: Seconds = Field(
        description="training: for samples; generation: what its iteration takes beyond its phases; of an asynchronous "
        "run the rest of the period"
    )
    phases: dict[str, Seconds] = Field(description="mean seconds by phase")
    memory: Peaks = Field(description="maximum over the side's ranks")


class OverlapRole(Frozen):
    """Devices with one task in an asynchronous run. A device has one role."""

    ranks: int = Field(gt=0)
    busy_seconds: Seconds = Field(description="that its ranks worked, summed over them, mean per counted iteration")
    busy_share: float = Field(ge=0, le=1, description="of the time that its ranks had")
    idle_share: float = Field(ge=0, le=1, description="the rest of it")


class Overlap(Frozen):
    """Generation beside training, on ranks of its own: of what it takes, what the iteration still shows."""

    exposed_generate_seconds: Seconds = Field(
        description="that the training side waited for samples: its phase generate"
    )
    generation_busy_seconds: Seconds = Field(description="that the generation side generated")
    sides: dict[Literal["training", "generation"], OverlapSide]
    roles: dict[str, OverlapRole] | None = Field(
        default=None, description="of an asynchronous run, over all of its devices; null: the sides take turns by rule"
    )
    staleness: dict[str, float] | None = Field(
        default=None,
        description="of an asynchronous run: share of the consumed samples by how many publications of weights old "
        "they were; null: it is one number",
    )
