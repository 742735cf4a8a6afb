"""Options of the commands that render and submit batch jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

if TYPE_CHECKING:
    from suite.launch.cluster.launcher import NodeSetup
    from suite.launch.slurm.settings import SlurmSettings

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
        from suite.launch.slurm.settings import SlurmSettings
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
