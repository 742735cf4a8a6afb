"""Which GPUs a container runtime can give to a container, and asking an image or a runtime by a short container."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from docker.errors import APIError

from suite.launch.docker.conclude import essence, told
from suite.launch.docker.connection import Runtime
from suite.launch.docker.images import ImageFacts
from suite.launch.docker.session import ask
from suite.launch.docker.settings import DockerSettings, GpuAccess
from suite.launch.job import PYTHON
from suite.launch.probe import ASK_VERSIONS, LocalDevice, local_devices, mig_slice, named_gpus
from suite.spec.base import UsageError
from suite.spec.foreign import read_bytes

CDI_KIND = "nvidia.com/gpu"
_LISTED = re.compile(r"GPU (\d+): (.+) \(UUID: (\S+)\)")
_KIND_LINE = re.compile(rb"[\"']?kind[\"']?\s*:\s*[\"']?nvidia\.com/gpu")


def access_of(runtime: Runtime, asked: GpuAccess) -> Literal["nvidia", "cdi"]:
    """How GPUs are asked for: by CDI where the runtime has it and NVIDIA's devices are described, else by the hook."""
    if asked != "auto":
        return asked
    folders = () if runtime.facts.remote else runtime.cdi_folders
    files = (file for folder in folders for file in Path(folder).glob("*.[jy]*"))  # JSON or YAML
    is_described = any(device.startswith(CDI_KIND) for device in runtime.cdi_devices)
    return "cdi" if is_described or any(map(_describes_gpus, files)) else "nvidia"


def device_requests(ids: Sequence[str], count: int | None, access: Literal["nvidia", "cdi"]) -> list[dict[str, Any]]:
    """GPUs by ids or by count (-1: all), as the runtime's API wants them. CDI knows names only: the first so many."""
    if not ids and not count:
        return []
    if access == "cdi":
        names = ids or (["all"] if count == -1 else [str(index) for index in range(count or 0)])
        return [{"Driver": "cdi", "DeviceIDs": [f"{CDI_KIND}={name}" for name in names]}]
    wanted: dict[str, Any] = {"DeviceIDs": list(ids)} if ids else {"Count": count}
    return [{"Driver": "", "Capabilities": [["gpu"]], **wanted}]


def may_have_gpus(runtime: Runtime) -> bool:
    """Whether GPUs that nobody named are worth asking for: this host's driver shows some, or the runtime knows them."""
    here = () if runtime.facts.remote else local_devices()
    return bool(here) or "nvidia" in runtime.runtimes or access_of(runtime, "auto") == "cdi"


def usable_gpus(runtime: Runtime, settings: DockerSettings, image: str) -> tuple[LocalDevice, ...]:
    """The GPUs that runs may use: those named, or all. Raises UsageError when some are not there."""
    here = () if runtime.facts.remote else local_devices()
    if not here:
        return _ask_container(runtime, settings, image)
    return named_gpus(here, settings.gpu_ids) if settings.gpu_ids else here


def _ask_container(runtime: Runtime, settings: DockerSettings, image: str) -> tuple[LocalDevice, ...]:
    """As the runtime gives them to a container of the image. Their memory is not listed this way."""
    names = settings.gpu_ids
    wanted = device_requests(names, -1, access_of(runtime, settings.gpu_access))
    try:
        listed = ask(runtime.api, image, ("nvidia-smi", "-L"), DeviceRequests=wanted).decode(errors="replace")
    except APIError as error:
        asked = f"GPU {','.join(names)}" if names else "any GPU"
        raise UsageError(
            f"the container runtime does not give {asked} to a container: {essence(str(error.explanation or error))}; "
            "describe GPUs for CDI (nvidia-ctk cdi generate), or install NVIDIA's hook (--gpu-access says which)"
        ) from error
    if names and all(name.startswith("MIG-") for name in names):
        return tuple(map(mig_slice, names))
    found = [match.groups() for match in map(_LISTED.match, listed.splitlines()) if match]
    return tuple(LocalDevice(index=int(index), uuid=uuid, name=name, memory_bytes=None) for index, name, uuid in found)


def _describes_gpus(file: Path) -> bool:
    with suppress(OSError, UsageError):
        return _KIND_LINE.search(read_bytes(file, str(file), by_user=True)) is not None
    return False


def image_versions(
    runtime: Runtime, image: ImageFacts, python: str, packages: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, str | None]:
    """Version of each package in the image, and of those of ``optional`` that it has, by its labels, or by its
    interpreter where a label is missing. Raises UsageError when it has no such interpreter."""
    found: dict[str, str | None] = dict(image.stack)
    if python != PYTHON or not set(packages) <= found.keys():
        try:
            found = json.loads(ask(runtime.api, image.id, (python, "-c", ASK_VERSIONS, *packages, *optional)))
        except APIError as error:
            raise UsageError(f"{image.reference} cannot tell the versions of its stack: {told(error)}") from error
    there = [package for package in optional if found.get(package) is not None]
    return {package: found.get(package) for package in (*packages, *there)}
