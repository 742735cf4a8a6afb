"""How a user wants a run to be put into Slurm's queue."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator

from suite.launch.slurm.further import refusal
from suite.spec.base import Frozen

Container = Literal["none", "pyxis", "apptainer"]
#: Who starts the ranks of a node: torchrun, once per node, or srun, as one task per rank.
StarterName = Literal["torchrun", "srun"]
#: How submissions keep a starter's name; their files are older than the word srun.
STORED_STARTERS: dict[StarterName, str] = {"torchrun": "torchrun", "srun": "engine"}


def starter_of(word: Any) -> Any:
    """A starter by its name or by its older one, ``engine``; anything else as it is."""
    return "srun" if word == "engine" else word


Starter = Annotated[StarterName, BeforeValidator(starter_of)]


class SlurmSettings(Frozen):
    """What the cluster is asked for beside the job's own nodes, devices and limits; ``None``: the cluster's default."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    constraint: str | None = None
    gpu_request: Literal["gpus-per-node", "gres"] = Field(
        default="gpus-per-node", description="older clusters know --gres only"
    )
    gpu_type: str | None = Field(default=None, description="the cluster's name of the GPU, e.g. h100")
    exclusive: bool = Field(default=True, description="whole nodes: a neighbour's job would be measured too")
    cpus_per_node: int | None = Field(default=None, gt=0, description="null: all of an exclusive node")
    allowance_seconds: float = Field(
        default=600.0, ge=0, description="added to the run's own limit: start, image, first connection, end"
    )
    requeue: bool = Field(default=False, description="let Slurm start the run again from its beginning")
    container: Container = "none"
    starter: Starter = "torchrun"
    at_once: int = Field(default=1, gt=0, description="runs of a results folder that may run at the same time")
    cpus_per_task: int | None = Field(default=None, gt=0, description="null: the node's CPUs divided among its tasks")
    cpu_bind: str | None = Field(default=None, description="srun binds each task so; null: not at all")
    hint: str | None = Field(default=None, description="how tasks share cores, in srun's words, e.g. nomultithread")
    options: tuple[str, ...] = Field(default=(), description="further options of sbatch, each as one word")

    @property
    def manner(self) -> str | None:
        """How ranks are started and bound, in words, where that is not the usual way."""
        named = {"cpus-per-task": self.cpus_per_task, "cpu-bind": self.cpu_bind, "hint": self.hint}
        bound = [f"{name}={value}" for name, value in named.items() if value is not None]
        return None if self.starter == "torchrun" and not bound else " ".join((self.starter, *bound))

    @field_validator("options")
    @classmethod
    def _lose_no_result(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        for option in options:
            if not option.startswith("-"):
                raise ValueError(f"--sbatch={option}: is no option; write --sbatch=--exclude=n7")
            why = refusal(option)
            if why is not None:
                raise ValueError(why)
        return options
