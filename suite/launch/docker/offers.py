"""What a container runtime has for a run: its image, held to what the driver needs of it, and the host's GPUs."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from docker.auth import INDEX_NAME, resolve_repository_name
from docker.errors import APIError, DockerException, ImageNotFound
from docker.utils import parse_repository_tag
from pydantic import Field

from suite.launch.docker.conclude import essence, told
from suite.launch.docker.connection import Runtime
from suite.launch.docker.session import ask
from suite.launch.docker.settings import DockerSettings, GpuAccess, Pull
from suite.launch.job import PYTHON
from suite.launch.probe import ASK_VERSIONS, LocalDevice, local_devices, mig_slice, named_gpus
from suite.spec.base import Frozen, UsageError
from suite.spec.foreign import read_bytes
from suite.spec.images import IMAGE_LABEL, REVISION_LABEL, VERSION_LABEL, images_of, stack_versions_of
from suite.spec.version import suite_version


class ImageFacts(Frozen):
    """What a run's record holds of the image it ran in."""

    reference: str = Field(description="as it was asked for; a tag may mean another image tomorrow")
    id: str = Field(description="digest of its configuration, which names the image on this host")
    digest: str | None = Field(description="in the repository that was asked for; null: none is known")
    revision: str | None = Field(description="commit of the suite it was built from, as its label says")
    stack: dict[str, str] = Field(description="package -> version as its labels say")


def usual_image(backend: str) -> str:
    """Reference of the image that holds a backend's stack. Raises UsageError for a backend without one."""
    known = images_of(backend)
    if not known:
        raise UsageError(f"no image of the catalogue holds {backend}; name one with --image")
    return known[0].tag(suite_version())


def find_image(runtime: Runtime, reference: str, pull: Pull, on_progress: Callable[[str], None]) -> ImageFacts:
    """The image on the runtime. Raises UsageError when it is not there, cannot be had, or is not meant for this."""
    found = None if pull == "always" else _inspected(runtime, reference)
    if pull == "always" or (found is None and pull == "missing" and "/" in reference):
        _pull(runtime, reference, on_progress)
        found = _inspected(runtime, reference)
    if found is None:
        way_out = "`suite images list` shows what is there, `suite images build` makes the suite's own"
        raise UsageError(f"there is no image {reference} on this runtime (--pull {pull}); {way_out}")
    labels = (found.get("Config") or {}).get("Labels") or {}
    architecture, version = found.get("Architecture"), labels.get(VERSION_LABEL)
    if architecture and runtime.architecture and architecture != runtime.architecture:
        raise UsageError(f"{reference} is for {architecture}, the runtime for {runtime.architecture}: build it there")
    if IMAGE_LABEL in labels and version not in (None, suite_version()):
        again = f"suite images build {labels[IMAGE_LABEL]}"
        raise UsageError(f"{reference} holds suite {version}, this is {suite_version()}; build it again: {again}")
    return ImageFacts(
        reference=reference,
        id=found["Id"],
        digest=digest_in(reference, found.get("RepoDigests") or ()),
        revision=labels.get(REVISION_LABEL),
        stack=stack_versions_of(labels),
    )


def _inspected(runtime: Runtime, reference: str) -> dict[str, Any] | None:
    try:
        return runtime.api.inspect_image(reference)
    except ImageNotFound:
        return None
    except APIError as error:
        raise UsageError(f"the container runtime takes {reference!r} for no image: {error.explanation}") from error


def digest_in(reference: str, digests: Iterable[str]) -> str | None:
    """Of an image's digests that of the repository a user asked for; None for a name without a registry, which was
    given here, although some runtimes list it with a digest too."""
    asked = _repository(reference)
    found = (digest for digest in digests if _repository(digest) == asked)
    return next(found, None) if "/" in asked else None


def _repository(name: str) -> str:
    """Of a reference or a digest, as runtimes shorten it; an image of Podman's own is on localhost."""
    registry, path = resolve_repository_name(parse_repository_tag(name.partition("@")[0])[0])
    return path.removeprefix("library/") if registry in (INDEX_NAME, "localhost") else f"{registry}/{path}"


def _pull(runtime: Runtime, reference: str, on_progress: Callable[[str], None]) -> None:
    repository, tag = parse_repository_tag(reference)
    on_progress(f"pulling {reference}")
    layers, done = set[str](), set[str]()
    try:
        for line in runtime.api.pull(repository, tag or "latest", stream=True, decode=True):
            if "error" in line:
                raise DockerException(line["error"])
            if line.get("id") and line.get("status") == "Pulling fs layer":
                layers.add(line["id"])
            if line.get("status") in ("Pull complete", "Already exists"):
                done.add(line["id"])
                on_progress(f"pulling {reference}: {len(done)} of {len(layers | done)} layers")
    except (DockerException, OSError) as error:
        raise UsageError(f"{reference} cannot be pulled: {told(error)}; check its name, registry and log-in") from error


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


CDI_KIND = "nvidia.com/gpu"
_LISTED = re.compile(r"GPU (\d+): (.+) \(UUID: (\S+)\)")
_KIND_LINE = re.compile(rb"[\"']?kind[\"']?\s*:\s*[\"']?nvidia\.com/gpu")


def access_of(runtime: Runtime, asked: GpuAccess) -> Literal["nvidia", "cdi"]:
    """How GPUs are asked for: by CDI where the runtime has it and NVIDIA's devices are described, else by the hook."""
    if asked != "auto":
        return asked
    folders = None if runtime.facts.remote else runtime.info.get("CDISpecDirs")
    files = (file for folder in folders or () for file in Path(folder).glob("*.[jy]*"))  # JSON or YAML
    found = runtime.info.get("DiscoveredDevices") or ()
    is_listed = any(one.get("Source") == "cdi" and str(one.get("ID")).startswith(CDI_KIND) for one in found)
    return "cdi" if is_listed or any(map(_describes_gpus, files)) else "nvidia"


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
    return bool(here) or "nvidia" in (runtime.info.get("Runtimes") or ()) or access_of(runtime, "auto") == "cdi"


def usable_gpus(runtime: Runtime, settings: DockerSettings, image: str) -> tuple[LocalDevice, ...]:
    """The GPUs that runs may use: those named, or all. Raises UsageError when some are not there."""
    here = () if runtime.facts.remote else local_devices()
    names = settings.gpu_ids
    if here:
        return named_gpus(here, names) if names else here
    # as the runtime gives them to a container of the image, which does not list their memory
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
