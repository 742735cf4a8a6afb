"""How a user wants a run to be put into Slurm's queue, and the options that say it.

Further options of sbatch that would lose a run's result, or its place, are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer
from pydantic import BeforeValidator, Field, field_validator

from suite.spec.base import Frozen

if TYPE_CHECKING:
    from suite.launch.cluster.launcher import NodeSetup

#: long name -> who sets it instead; sbatch takes every beginning of a name that means one option
_OURS = {
    "output": "the results folder (--runs)",
    "error": "the results folder (--runs)",
    "input": "nothing: ranks read no input",
    "open-mode": "the results folder (--runs)",
    "chdir": "the results folder (--runs)",
    "array": "--array and --array-limit",
    "job-name": "the run's id",
    "nodes": "--nodes",
    "ntasks": "--nodes, --gpus-per-node and --starter",
    "ntasks-per-node": "--gpus-per-node and --starter",
    "time": "--timeout and --allowance",
    "wrap": "the run's own script",
    "parsable": "suite submit itself",
    "test-only": "--dry-run",
    "wait": "suite collect --wait",
    "requeue": "--requeue",
    "no-requeue": "--requeue",
    "help": "sbatch --help",
    "usage": "sbatch --usage",
    "version": "sbatch --version",
}
_SHORT = {
    "o": "output",
    "e": "error",
    "i": "input",
    "D": "chdir",
    "a": "array",
    "J": "job-name",
    "N": "nodes",
    "n": "ntasks",
    "t": "time",
    "W": "wait",
    "h": "help",
    "V": "version",
}
#: short ones that take no value, so that others may follow at once
_FLAGS = "HIkOQsvuWhVX"


def refusal(option: str) -> str | None:
    """Why a further option of sbatch is not taken; None for one that is."""
    name = _long_name(option)
    if name is None:
        return None
    return f"--sbatch={option} would lose the run's result or change the run; {name} is set by {_OURS[name]}"


def _long_name(option: str) -> str | None:
    """The option of ``_OURS`` that is meant."""
    if option.startswith("--"):
        given = option[2:].partition("=")[0]
        if given in _OURS:
            return given
        return next((name for name in _OURS if len(given) > 1 and name.startswith(given)), None)
    for letter in option[1:] if option.startswith("-") else "":
        if letter in _SHORT:
            return _SHORT[letter]
        if letter not in _FLAGS:
            return None
    return None


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


Text = str | None


@dataclass(frozen=True)
class SlurmOptions:
    """How the runs are put into the queue."""

    HEADING: ClassVar = "Queue"

    partition: Annotated[Text, typer.Option(help="partition [default: the cluster's]")] = None
    account: Annotated[Text, typer.Option(help="account that pays")] = None
    qos: Annotated[Text, typer.Option(help="quality of service")] = None
    reservation: Annotated[Text, typer.Option(help="reservation")] = None
    constraint: Annotated[Text, typer.Option(metavar="FEATURES", help="features of the nodes, e.g. 'h100&ib'")] = None
    gpu_request: Annotated[
        str, typer.Option(metavar="gpus-per-node|gres", help="how to ask for GPUs; gres on older clusters")
    ] = "gpus-per-node"
    gpu_type: Annotated[Text, typer.Option(help="the cluster's name of the GPU, e.g. h100")] = None
    exclusive: Annotated[bool, typer.Option(help="whole nodes: otherwise a neighbour's job is measured too")] = True
    cpus_per_node: Annotated[int | None, typer.Option(help="CPUs of each node [default: all, where exclusive]")] = None
    memory_per_rank: Annotated[Text, typer.Option(help="host memory of a rank, e.g. 64g [default: the whole node]")] = (
        None
    )
    allowance: Annotated[str, typer.Option(help="added to --timeout for starting, importing the image and ending")] = (
        "10m"
    )
    requeue: Annotated[bool, typer.Option(help="let Slurm start a preempted run again from its beginning")] = False
    container: Annotated[
        Text, typer.Option(metavar="pyxis|apptainer|none", help="[default: pyxis with --image, else none]")
    ] = None
    starter: Annotated[
        str, typer.Option(metavar="torchrun|srun", help="who starts the ranks: once per node, or as one task per rank")
    ] = "torchrun"
    array: Annotated[bool, typer.Option("--array", help="join runs that ask for the same into one array job")] = False
    at_once: Annotated[
        int, typer.Option(min=1, help="runs of this results folder at the same time; their timings may interfere")
    ] = 1
    cpus_per_task: Annotated[
        int | None, typer.Option(min=1, help="CPUs of each task, a node under torchrun, a rank under srun")
    ] = None
    cpu_bind: Annotated[
        Text, typer.Option(metavar="none|cores|ldoms", help="how srun binds ranks, with --starter srun [default: none]")
    ] = None
    hint: Annotated[Text, typer.Option(metavar="nomultithread", help="how tasks share cores")] = None
    sbatch: Annotated[
        list[str] | None, typer.Option(metavar="OPTION", help="of sbatch, e.g. --sbatch=--exclude=n7")
    ] = None

    def settings(self, nodes: NodeSetup) -> SlurmSettings:
        """Raises UsageError or ValidationError for values that do not fit each other."""
        from suite.spec.base import UsageError
        from suite.spec.typed import same_named, seconds

        container = self.container or ("none" if nodes.image is None else "pyxis")
        if container == "none" and nodes.image is not None:
            raise UsageError(f"--container none beside --image {nodes.image}: leave one of them out")
        if container != "none" and nodes.image is None:
            raise UsageError(f"--container {container} without an image: name one with --image, or leave it out")
        if nodes.image is not None and nodes.image.endswith((".sqsh", ".sif")) and not nodes.image.startswith("/"):
            raise UsageError(f"--image {nodes.image}: write the whole path of an image file, as the nodes see it")
        self._check_binding()
        body = {
            **same_named(self, SlurmSettings),
            "allowance_seconds": seconds("--allowance", self.allowance),
            "container": container,
            "options": tuple(self.sbatch or ()),
        }
        return SlurmSettings.model_validate(body)

    def _check_binding(self) -> None:
        from suite.spec.base import UsageError

        if self.cpu_bind is not None and self.starter == "torchrun":
            raise UsageError(
                f"--cpu-bind {self.cpu_bind}: torchrun starts the ranks of a node, so srun cannot bind them; add "
                "--starter srun"
            )
        if self.cpu_bind is not None and self.hint is not None:
            raise UsageError("--cpu-bind and --hint exclude each other: srun takes one of them")
        if self.cpus_per_task is not None and self.cpus_per_node is not None:
            raise UsageError("--cpus-per-task and --cpus-per-node say the same: leave one of them out")
