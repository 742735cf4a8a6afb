"""Options of the commands that render and submit batch jobs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.options.cluster import Nodes
from suite.cli.options.work import Work

if TYPE_CHECKING:
    from suite.conduct.cluster.slurm import Script
    from suite.conduct.cluster.to_do import ToDo
    from suite.launch.job import Site
    from suite.launch.slurm.settings import SlurmSettings
    from suite.spec.manifest import Manifest

#: where the images of the suite have it
IMAGE_PYTHON, IMAGE_SUITE = "/opt/stack/bin/python", "/opt/suite/src"
Text = str | None


@dataclass(frozen=True)
class Queue:
    """How the runs are put into the queue."""

    partition: Annotated[Text, typer.Option(help="partition [default: the cluster's]", rich_help_panel="Queue")] = None
    account: Annotated[Text, typer.Option(help="account that pays", rich_help_panel="Queue")] = None
    qos: Annotated[Text, typer.Option(help="quality of service", rich_help_panel="Queue")] = None
    reservation: Annotated[Text, typer.Option(help="reservation", rich_help_panel="Queue")] = None
    constraint: Annotated[Text, typer.Option(help="features of the nodes, e.g. 'h100&ib'", rich_help_panel="Queue")] = (
        None
    )
    gpu_request: Annotated[
        str, typer.Option(help="ask by gpus-per-node, or gres on older clusters", rich_help_panel="Queue")
    ] = "gpus-per-node"
    gpu_type: Annotated[
        Text, typer.Option(help="the cluster's name of the GPU, e.g. h100", rich_help_panel="Queue")
    ] = None
    exclusive: Annotated[
        bool, typer.Option(help="whole nodes: a neighbour's job would be measured too", rich_help_panel="Queue")
    ] = True
    cpus_per_node: Annotated[
        int | None, typer.Option(help="CPUs of each node [default: all, where exclusive]", rich_help_panel="Queue")
    ] = None
    memory_per_rank: Annotated[
        Text, typer.Option(help="host memory of a rank, e.g. 64g [default: the whole node]", rich_help_panel="Queue")
    ] = None
    allowance: Annotated[str, typer.Option(help="added to --timeout: start, image, end", rich_help_panel="Queue")] = (
        "10m"
    )
    requeue: Annotated[
        bool, typer.Option(help="let Slurm start a preempted run again from its beginning", rich_help_panel="Queue")
    ] = False
    container: Annotated[
        Text,
        typer.Option(
            help="pyxis, apptainer or none [default: pyxis with --image, else none]", rich_help_panel="Containers"
        ),
    ] = None
    starter: Annotated[
        str,
        typer.Option(
            help="torchrun: one task a node; engine: one task a rank, started by Slurm itself", rich_help_panel="Queue"
        ),
    ] = "torchrun"
    array: Annotated[
        bool, typer.Option("--array", help="one array job for all runs that ask for the same", rich_help_panel="Queue")
    ] = False
    array_limit: Annotated[
        int, typer.Option(help="runs of an array at the same time; more disturb each other", rich_help_panel="Queue")
    ] = 1
    sbatch: Annotated[
        list[str] | None,
        typer.Option(help="a further option of sbatch, e.g. --sbatch=--exclude=n7", rich_help_panel="Queue"),
    ] = None

    def scripts(self, work: Work, nodes: Nodes) -> tuple[list[Script], ToDo]:
        """The scripts of all runs that are still to be done. Raises UsageError."""
        from suite.conduct.cluster.slurm import scripts
        from suite.conduct.cluster.to_do import prepare, to_do
        from suite.launch.slurm.scheduler import SlurmScheduler
        from suite.spec.base import UsageError

        settings = self.settings(nodes)
        plan = nodes.plan(work, IMAGE_PYTHON)
        found = to_do(plan.manifests, nodes.runs, nodes.retry_failed)
        site = self._site(nodes)

        def site_of(manifest: Manifest) -> Site:
            gpus = manifest.layout.devices_per_node if manifest.measure.device == "cuda" else None
            return site.model_copy(update={"device_count": gpus})

        for entry in plan.skipped:
            typer.echo(f"not possible: {entry.backend} {entry.size} on {entry.ranks} ranks: {entry.reason}", err=True)
        if not plan.manifests:
            raise UsageError("nothing of this can run")
        submissions = prepare(found.manifests, SlurmScheduler(), site_of)
        return scripts(submissions, settings, nodes.runs, self.array), found

    def settings(self, nodes: Nodes) -> SlurmSettings:
        """Raises UsageError for values that do not fit each other."""
        from suite.cli.options.reading import checked, seconds
        from suite.launch.slurm.settings import SlurmSettings
        from suite.spec.base import UsageError

        container = self.container or ("none" if nodes.image is None else "pyxis")
        if (container == "none") != (nodes.image is None):
            given = "without an image" if nodes.image is None else f"beside --image {nodes.image}"
            raise UsageError(f"--container {container} {given}: say both, or neither")
        if nodes.image is not None and nodes.image.endswith((".sqsh", ".sif")) and not nodes.image.startswith("/"):
            raise UsageError(f"--image {nodes.image}: write the whole path of an image file, as the nodes see it")
        body = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "reservation": self.reservation,
            "constraint": self.constraint,
            "gpu_request": self.gpu_request,
            "gpu_type": self.gpu_type,
            "exclusive": self.exclusive,
            "cpus_per_node": self.cpus_per_node,
            "allowance_seconds": seconds(self.allowance),
            "requeue": self.requeue,
            "container": container,
            "starter": self.starter,
            "array_limit": self.array_limit,
            "options": tuple(self.sbatch or ()),
        }
        return checked(lambda: SlurmSettings.model_validate(body))

    def _site(self, nodes: Nodes) -> Site:
        from suite.cli.options.launchers import size
        from suite.launch.cluster.torchrun import EVENTS_ON_OUTPUT
        from suite.launch.job import Site
        from suite.launch.local import worker_path
        from suite.spec.base import UsageError

        python = nodes.interpreter(IMAGE_PYTHON)
        if nodes.image is None and nodes.mount:
            raise UsageError("--mount shows folders to a container; without --image the nodes' own are there")
        variables = {**EVENTS_ON_OUTPUT, **nodes.variables()}
        if nodes.image is not None:
            variables["SUITE_IMAGE"] = nodes.image
        return Site(
            python=python,
            bundle=".",
            python_path=worker_path(python) if nodes.image is None else IMAGE_SUITE,
            env=variables,
            image=nodes.image,
            memory_bytes=size(self.memory_per_rank) if self.memory_per_rank else None,
            mounts=nodes.mounts(),
        )


USUAL_QUEUE = Queue()
USUAL_RUNS = Path("runs")
