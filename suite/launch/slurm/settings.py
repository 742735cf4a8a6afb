"""How a user wants a run to be put into Slurm's queue: settings, and the options that set them."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from suite.spec.base import Frozen
from suite.spec.fields import Declared
from suite.spec.typed import seconds, size

#: what would lose a result or its place; sbatch takes every beginning of a name that means one option
_OURS = (
    *("output", "error", "input", "open-mode", "chdir", "array", "job-name", "nodes", "ntasks", "ntasks-per-node"),
    *("time", "wrap", "parsable", "test-only", "wait", "requeue", "no-requeue", "help", "usage", "version"),
)
Container = Literal["pyxis", "apptainer", "none"]


class SlurmSettings(Frozen):
    """What the cluster is asked for beside the job's own nodes, devices and limits; ``None``: the cluster's default."""

    HEADING: ClassVar = "Queue"

    partition: Annotated[str | None, Declared("--partition", "partition [default: the cluster's]")] = None
    account: Annotated[str | None, Declared("--account", "account that pays")] = None
    qos: Annotated[str | None, Declared("--qos", "quality of service")] = None
    reservation: Annotated[str | None, Declared("--reservation", "reservation")] = None
    constraint: Annotated[
        str | None, Declared("--constraint", "features of the nodes, e.g. 'h100&ib'", metavar="FEATURES")
    ] = None
    gpu_request: Annotated[
        Literal["gpus-per-node", "gres"], Declared("--gpu-request", "how to ask for GPUs; gres on older clusters")
    ] = "gpus-per-node"
    gpu_type: Annotated[str | None, Declared("--gpu-type", "the cluster's name of the GPU, e.g. h100")] = None
    exclusive: Annotated[
        bool, Declared("--exclusive", "whole nodes: otherwise a neighbour's job is measured too", "switch")
    ] = True
    cpus_per_node: Annotated[
        int | None, Declared("--cpus-per-node", "CPUs of a node, shared by its tasks [default: all, where exclusive]")
    ] = Field(default=None, gt=0)
    memory_per_rank: Annotated[
        int | None,
        Declared("--memory-per-rank", "host memory of a rank, e.g. 64g [default: the whole node]", reads=size),
    ] = Field(default=None, description="bytes")
    allowance_seconds: Annotated[
        float,
        Declared(
            "--allowance",
            "added to --timeout for starting, importing the image and ending [default: 10m]",
            reads=seconds,
            metavar="DURATION",
        ),
    ] = Field(default=600.0, ge=0)
    requeue: Annotated[
        bool, Declared("--requeue", "let Slurm start a preempted run again from its beginning", "switch")
    ] = False
    container: Annotated[Container, Declared("--container", "[default: pyxis with --image, else none]")] = "none"
    starter: Annotated[
        Literal["torchrun", "srun"],
        Declared("--starter", "who starts the ranks: once per node, or as one task per rank"),
    ] = "torchrun"
    array: Annotated[bool, Declared("--array", "join runs that ask for the same into one array job", "flag")] = False
    at_once: Annotated[
        int, Declared("--at-once", "runs of this results folder at the same time; their timings may interfere", least=1)
    ] = Field(default=1, gt=0)
    cpu_bind: Annotated[
        str | None,
        Declared("--cpu-bind", "how srun binds ranks, with --starter srun [default: none]", metavar="none|cores|ldoms"),
    ] = None
    hint: Annotated[str | None, Declared("--hint", "how tasks share cores", metavar="nomultithread")] = None
    options: Annotated[
        tuple[str, ...], Declared("--sbatch", "of sbatch, e.g. --sbatch=--exclude=n7", "list", metavar="OPTION")
    ] = ()

    @property
    def manner(self) -> str | None:
        """How ranks are started and bound, in words, where that is not the usual way."""
        named = {"cpus-per-node": self.cpus_per_node, "cpu-bind": self.cpu_bind, "hint": self.hint}
        bound = [f"{name}={value}" for name, value in named.items() if value is not None]
        return None if self.starter == "torchrun" and not bound else " ".join((self.starter, *bound))

    @field_validator("options")
    @classmethod
    def _lose_no_result(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        for option in options:
            if not option.startswith("--"):
                raise ValueError(f"--sbatch={option}: name the option in full, as in --sbatch=--exclude=n7")
            given = option[2:].partition("=")[0]
            name = next((name for name in _OURS if len(given) > 1 and name.startswith(given)), None)
            if name is not None:
                raise ValueError(
                    f"--sbatch={option} would lose the run's result or change the run; suite submit sets {name} itself "
                    "(`suite submit slurm --help` has its options)"
                )
        return options

    @model_validator(mode="after")
    def _binds_once(self) -> "SlurmSettings":
        if self.cpu_bind is not None and (self.starter == "torchrun" or self.hint is not None):
            raise ValueError(f"--cpu-bind {self.cpu_bind} is for ranks of --starter srun, and srun takes it or --hint")
        return self
