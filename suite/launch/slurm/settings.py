"""How a user wants a run to be put into Slurm's queue."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from suite.launch.cluster.torchrun import Starter
from suite.spec.base import Frozen

Container = Literal["none", "pyxis", "apptainer"]


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
    array_limit: int = Field(default=1, gt=0, description="runs of one array that may run at the same time")
    options: tuple[str, ...] = Field(default=(), description="further options of sbatch, each as one word")
