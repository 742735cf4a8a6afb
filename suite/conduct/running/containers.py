"""A session in containers: the container runtime, images and devices, examined once before the first run."""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Literal

from docker.errors import DockerException
from pydantic import Field

from suite.backends.registry import find_backend
from suite.conduct.planning.machine import (
    Machine,
    measured_with,
    name_of_all,
    require_device_name,
    smallest_memory,
    threads_of_a_full_node,
)
from suite.launch.docker.conclude import essence
from suite.launch.docker.connection import Runtime, connect
from suite.launch.docker.gpus import image_versions, may_have_gpus, usable_gpus
from suite.launch.docker.images import ImageFacts, find_image, usual_image
from suite.launch.docker.launcher import DockerLauncher
from suite.launch.docker.session import remove_orphans
from suite.launch.docker.settings import DockerSettings
from suite.launch.job import PYTHON
from suite.launch.probe import LocalDevice, physical_cores
from suite.report.formatting.numbers import counted
from suite.spec.base import UsageError


class ContainerMachine(Machine):
    """What the host of a container runtime offers, and the stacks of the images: both by backend."""

    device_names: tuple[str, ...] = Field(description="as of any machine, and on a CPU the numbers of its CPUs")
    references: dict[str, str]
    image_ids: dict[str, str]
    found: dict[str, dict[str, str | None]]
    holder: ClassVar[str] = "image with --image"

    def versions(self, backend: str) -> dict[str, str | None]:
        return self.found[backend]

    def code(self, backends: Iterable[str]) -> dict[str, dict[str, str]]:
        return {}

    def stack_errors(self, backend: str) -> list[str]:
        """None: each run checks the stack in its image anyway."""
        return []

    def images(self, backends: Iterable[str]) -> dict[str, str | None]:
        return {name: self.image_ids[name] for name in backends}

    def where(self, backend: str) -> str:
        return self.references[backend]


def open_containers(
    settings: DockerSettings,
    image: str | None,
    backends: Sequence[str],
    device: str,
    python: str | None,
    on_progress: Callable[[str], None],
    planning: bool = False,
) -> tuple[ContainerMachine, DockerLauncher]:
    """Reach the runtime, clear away what dead sessions left, find images and devices; ``planning``: GPUs that are asked
    for need not be there. Raises UsageError."""
    require_device_name(device, settings.gpu_ids)
    runtime = connect(settings.copy_back)
    try:  # what cannot be removed does not keep a session from its work
        if orphans := remove_orphans(runtime.api, not runtime.facts.remote):
            on_progress(f"removed {counted(orphans, 'container')} that an earlier driver had left behind")
    except DockerException as error:
        on_progress(f"what an earlier driver left behind cannot be removed: {essence(str(error))}")
    references = {name: image or usual_image(name) for name in backends}
    found = {
        reference: find_image(runtime, reference, settings.pull, on_progress) for reference in set(references.values())
    }
    images = {name: found[reference] for name, reference in references.items()}
    chosen, gpus = _devices(runtime, settings, device, next(iter(images.values())), planning)
    names = tuple(gpu.uuid for gpu in gpus) if chosen == "cuda" else _cpus(runtime, settings)
    # of another machine only the number of CPUs is known
    cores = None if runtime.facts.remote else physical_cores(map(int, _cpus(runtime, settings)))
    machine = ContainerMachine(
        python=python or PYTHON,
        device=chosen,
        max_ranks=len(names),
        device_names=names,
        limited_by="--gpu-ids " + ",".join(settings.gpu_ids) if chosen == "cuda" and settings.gpu_ids else None,
        device_memory_bytes=smallest_memory(gpus) if gpus else None,
        device_name=name_of_all(gpus) if gpus else None,
        threads_per_rank=threads_of_a_full_node(cores, len(gpus)) if chosen == "cuda" else 1,
        variables=measured_with(settings.env),
        references=references,
        image_ids={name: image.id for name, image in images.items()},
        found={name: _versions(runtime, images[name], python or PYTHON, name) for name in backends},
    )
    return machine, DockerLauncher(runtime=runtime, settings=settings, images=images)


def _versions(runtime: Runtime, image: ImageFacts, python: str, backend: str) -> dict[str, str | None]:
    driver = find_backend(backend)
    return image_versions(runtime, image, python, driver.packages, driver.optional_packages)


def _devices(
    runtime: Runtime, settings: DockerSettings, device: str, image: ImageFacts, planning: bool
) -> tuple[Literal["cpu", "cuda"], tuple[LocalDevice, ...]]:
    asked = device == "cuda" or bool(settings.gpu_ids)
    if device == "cpu" or not (asked or may_have_gpus(runtime)):
        return "cpu", ()
    try:
        gpus = usable_gpus(runtime, settings, image.id)
    except UsageError:
        if asked and not planning:
            raise
        return ("cuda", ()) if asked else ("cpu", ())
    if not gpus and asked and not planning:
        raise UsageError(
            f"a container on the container runtime at {runtime.host} sees no GPU; suite doctor says what is missing"
        )
    return ("cuda", gpus) if gpus or asked else ("cpu", ())


def _cpus(runtime: Runtime, settings: DockerSettings) -> tuple[str, ...]:
    """Numbers of the CPUs that a run may use."""
    if settings.cpuset is None:
        return tuple(str(number) for number in range(runtime.cpus))
    chosen: set[int] = set()
    for numbers in settings.cpuset.split(","):
        first, _, last = numbers.partition("-")
        chosen.update(range(int(first), int(last or first) + 1))
    return tuple(str(number) for number in sorted(chosen))
