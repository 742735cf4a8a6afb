"""What a cluster offers to a request, or to a manifest that is measured once more, as far as it is known from here."""

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from suite.backends.registry import find_backend
from suite.bundle.cache.database import Database
from suite.bundle.cache.place import cache_folder
from suite.conduct.planning.machine import USUAL_THREADS, Machine, require_same_variables, without_missing
from suite.conduct.planning.plan import Plan
from suite.conduct.running.rerun import require_same_stack, rerun_plan
from suite.images.inside import beside, read_beside, read_stack
from suite.images.project import Project, normal, pins_of
from suite.launch.probe import stack_versions
from suite.spec.base import UsageError
from suite.spec.catalogue import find_device
from suite.spec.foreign import open_plain
from suite.spec.images import images_of
from suite.spec.manifest import Manifest


def is_file(image: str) -> bool:
    """Whether a file is meant: names in registries do not begin with a slash, and a folder is an unpacked image."""
    return image.startswith("/") and not os.path.isdir(image)


def content_name(image: str) -> str:
    """A file's digest, else the image's name or a folder's path. Raises UsageError for a file that cannot be read."""
    return file_digest(Path(image)) if is_file(image) else image


def file_digest(path: Path) -> str:
    """``sha256:...`` of a file, known by size, time and inode later. Raises UsageError where it is not readable."""
    if not path.exists():
        raise UsageError(
            f"--image {path}: no such file or directory; a run is identified by what its image holds, so the file must "
            "be readable here under the path that the nodes see"
        )
    with open_plain(path, f"--image {path}", None, by_user=True) as file, closing(Database(cache_folder())) as known:
        status = os.fstat(file.fileno())
        state = f"{status.st_dev}.{status.st_ino} {status.st_size} {status.st_mtime_ns}"
        name = f"image file {os.path.realpath(path)} {state}".encode(errors="surrogateescape")
        found = known.get(name)
        if found is None:
            digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type] # the type of open files lacks readinto
            found = f"sha256:{digest.hexdigest()}".encode()
            known.put(name, found)
    return found.decode()


class ClusterMachine(Machine):
    """Nodes that cannot be examined from here: devices and stacks are what the user and the catalogues say."""

    image: str | None = Field(description="what the ranks run in; null: on the nodes themselves")
    image_name: str | None = Field(description="what names it by its content, as far as that is known")
    given: Mapping[str, str] = Field(description="package -> version as the user gave it")
    told: Mapping[str, str] | None = Field(description="normal name -> version by the file of its stack, if any")
    holder: ClassVar[str] = "version with --stack PACKAGE=VERSION"
    is_asked: ClassVar[bool] = False

    def versions(self, backend: str) -> dict[str, str | None]:
        """As given, else by the file of the image's stack, else of this interpreter, or by the image's lock."""
        driver = find_backend(backend)
        packages, optional = driver.packages, driver.optional_packages
        if set(packages) <= set(self.given):
            known: Mapping[str, str | None] = {}
        elif self.told is not None:
            known = self.told
        elif self.image is None:
            known = stack_versions(self.python, packages + optional)
        else:
            known = pinned(backend)
        versions = {
            package: self.given.get(package) or known.get(normal(package)) or known.get(package)
            for package in packages + optional
        }
        return without_missing(optional, versions)

    def code(self, backends: Iterable[str]) -> dict[str, dict[str, str]]:
        """None for an image, whose own digest says it, nor where versions are given of what cannot be asked here."""
        return super().code(backends) if self.image is None and not self.given else {}

    def images(self, backends: Iterable[str]) -> dict[str, str | None]:
        return dict.fromkeys(backends, self.image_name)

    def where(self, backend: str) -> str:
        if self.image is None:
            return self.python
        known = images_of(backend)
        return f"the lock of image {known[0].name}" if known else self.image

    def lacking(self, backend: str, missing: Sequence[str]) -> str:
        """What tells the versions of an image is a lock or a file, in which nothing can be installed."""
        if self.image is None:
            return super().lacking(backend, missing)
        pairs = " ".join(f"--stack {package}=VERSION" for package in missing)
        told = self.where(backend) if self.told is None else "the file of its stack"
        way = "give --stack FILE with what `suite images stack IMAGE > FILE` writes"
        if is_file(self.image):
            way = f"write {beside(Path(self.image))} with `suite images stack IMAGE --file {self.image}`"
        return (
            f"{backend} needs the version of {', '.join(missing)}, which {told} does not tell: give {pairs}; or {way} "
            "on a machine that has the image; or take an image that has them"
        )


def cluster_machine(
    *, device: Literal["cpu", "cuda"], gpu: str | None, image: str | None, stack_file: Path | None = None, **fields: Any
) -> ClusterMachine:
    """``gpu``: a device of the catalogue, by name or by enough of its words. ``stack_file``: what the image holds, as
    `suite images stack` writes it; beside an image file it is found. ``fields``: the others of a machine. Raises
    UsageError for an unknown device, and for files that cannot be read or do not belong together."""
    found = None if gpu is None else find_device(gpu)
    if gpu is not None and found is None:
        from suite.planner.ask import named_device

        found = named_device(gpu)[0]
    image_name = None if image is None else content_name(image)
    return ClusterMachine(
        device=device,
        device_memory_bytes=found.memory_bytes if found else None,
        device_name=found.name if found else None,
        threads_per_rank=USUAL_THREADS if device == "cuda" else 1,
        image=image,
        image_name=image_name,
        told=_told(image, image_name, stack_file),
        **fields,
    )


def _told(image: str | None, name: str | None, given: Path | None) -> Mapping[str, str] | None:
    if given is not None:
        if not given.exists():
            raise UsageError(f"--stack is PACKAGE=VERSION or a file, and there is no file {given}")
        return read_stack(given).packages
    found = None if image is None or name is None or not is_file(image) else read_beside(Path(image), name)
    return None if found is None else found.packages


@lru_cache(maxsize=None)
def pinned(backend: str) -> Mapping[str, str]:
    """Versions by normal name that the lock of a backend's usual image pins, or takes from a commit; empty: unknown."""
    images = images_of(backend)
    if not images:
        return {}
    found: dict[str, str] = {}
    if images[0].lock is not None:
        with suppress(UsageError, OSError):
            found = pins_of(Project.of().lock(images[0].lock))
    return {**found, **{normal(name): source.version for name, source in images[0].sources.items()}}


def plan_again(manifest: Manifest, root: Path, runs: int, machine: ClusterMachine) -> Plan:
    """So many more runs of a manifest on such nodes. Raises UsageError where it would be another measurement, as far as
    that is known from here: every rank compares its stack with the manifest's."""
    name = manifest.backend.name
    require_same_variables(manifest, machine.variables)
    require_same_stack(manifest, {**manifest.stack, **machine.stacks([name], as_found=True)[name]}, {})
    machine.require_generation([manifest])
    return rerun_plan(manifest, root, runs, machine.images([name])[name], manner=machine.manner)


def require_layout(manifest: Manifest, nodes: Sequence[int], devices_per_node: int | None) -> None:
    """Raises UsageError for other numbers than the manifest's."""
    layout = manifest.layout
    asked = [("--nodes", count, layout.nodes) for count in nodes]
    asked.append(("--gpus-per-node", devices_per_node or layout.devices_per_node, layout.devices_per_node))
    for option, count, own in asked:
        if count != own:
            raise UsageError(f"{option} {count}: the manifest has {own}; leave it out")
