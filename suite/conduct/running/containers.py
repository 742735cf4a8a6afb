"""A session in containers: the container runtime, images and devices, examined once before the first run."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from docker.errors import DockerException
from pydantic import Field

from suite.backends.registry import find_backend
from suite.conduct.planning.machine import Machine, measured_with, offered_by
from suite.launch.docker.conclude import essence
from suite.launch.docker.connection import Runtime, connect
from suite.launch.docker.launcher import DockerLauncher
from suite.launch.docker.offers import ImageFacts, find_image, image_versions, may_have_gpus, usable_gpus, usual_image
from suite.launch.docker.session import remove_orphans
from suite.launch.docker.settings import DockerSettings
from suite.launch.job import PYTHON
from suite.launch.probe import LocalDevice, physical_cores
from suite.report.formatting.numbers import counted
from suite.spec.base import UsageError


class ContainerMachine(Machine):
    """What the host of a container runtime offers, and the stacks of the images: both by backend."""

    device_names: tuple[str, ...] = Field(description="as of any machine, and on a CPU the numbers of its CPUs")
    facts: dict[str, ImageFacts]
    found: dict[str, dict[str, str | None]]
    holder: ClassVar[str] = "image with --image"
    is_asked: ClassVar[bool] = False

    def versions(self, backend: str) -> dict[str, str | None]:
        return self.found[backend]

    def code(self, backends: Iterable[str]) -> dict[str, dict[str, str]]:
        return {}

    def images(self, backends: Iterable[str]) -> dict[str, str | None]:
        return {name: self.facts[name].id for name in backends}

    def where(self, backend: str) -> str:
        return self.facts[backend].reference


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
    runtime = connect(settings.copy_back)
    try:  # what cannot be removed does not keep a session from its work
        if orphans := remove_orphans(runtime.api, not runtime.facts.remote):
            on_progress(f"removed {counted(orphans, 'container')} that an earlier driver had left behind")
    except DockerException as error:
        on_progress(f"what an earlier driver left behind cannot be removed: {essence(str(error))}")
    references = {name: image or usual_image(name) for name in backends}
    found = {each: find_image(runtime, each, settings.pull, on_progress) for each in set(references.values())}
    images = {name: found[reference] for name, reference in references.items()}
    gpus = _gpus(runtime, settings, device, next(iter(images.values())), planning)
    cpus = _cpus(runtime, settings)
    offered: dict[str, Any] = {"device": "cpu", "max_ranks": len(cpus), "device_names": tuple(map(str, cpus))}
    if gpus is not None:
        # of another machine only the number of CPUs is known
        offered = offered_by(gpus, None if runtime.facts.remote else physical_cores(cpus), len(gpus))
    machine = ContainerMachine(
        python=python or PYTHON,
        **offered,
        limited_by="--gpu-ids " + ",".join(settings.gpu_ids) if gpus is not None and settings.gpu_ids else None,
        variables=measured_with(settings.env),
        facts=images,
        found={name: _versions(runtime, images[name], python or PYTHON, name) for name in backends},
    )
    return machine, DockerLauncher(runtime=runtime, settings=settings, images=images)


def _versions(runtime: Runtime, image: ImageFacts, python: str, backend: str) -> dict[str, str | None]:
    driver = find_backend(backend)
    return image_versions(runtime, image, python, driver.packages, driver.optional_packages)


def _gpus(
    runtime: Runtime, settings: DockerSettings, device: str, image: ImageFacts, planning: bool
) -> tuple[LocalDevice, ...] | None:
    """Null where ranks compute on CPUs."""
    asked = device == "cuda" or bool(settings.gpu_ids)
    if device == "cpu" or not (asked or may_have_gpus(runtime)):
        return None
    try:
        gpus = usable_gpus(runtime, settings, image.id)
    except UsageError:
        if asked and not planning:
            raise
        gpus = ()
    if not gpus and asked and not planning:
        raise UsageError(f"a container of the runtime at {runtime.host} sees no GPU; suite doctor says what is missing")
    return gpus if gpus or asked else None


def _cpus(runtime: Runtime, settings: DockerSettings) -> list[int]:
    """Numbers of the CPUs that a run may use."""
    chosen: set[int] = set() if settings.cpuset else {*range(int(runtime.info.get("NCPU") or 1))}
    for numbers in settings.cpuset.split(",") if settings.cpuset else ():
        first, _, last = numbers.partition("-")
        chosen.update(range(int(first), int(last or first) + 1))
    return sorted(chosen)
