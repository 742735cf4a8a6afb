"""What this machine and its stack interpreter offer to a request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar, Literal

from suite.backends.base import native_packages
from suite.backends.registry import find_backend
from suite.launch.probe import LocalDevice, local_devices, stack_versions
from suite.spec.base import Frozen, UsageError
from suite.spec.device import Precision
from suite.spec.manifest import Manifest
from suite.theory.memory import memory_floor


class Machine(Frozen):
    """The resolved device of a session, and how much of it there is.

    ``host_memory_bytes``: what the ranks of a run on this host's CPU share; ``None`` elsewhere.
    """

    python: str
    device: Literal["cpu", "cuda"]
    max_ranks: int
    device_memory_bytes: int | None
    device_name: str | None = None
    host_memory_bytes: int | None = None
    holder: ClassVar[str] = "interpreter with --python"

    @property
    def usual_workload(self) -> str:
        """The workload that is meant for such a device."""
        return "trlx-ds-chat" if self.device == "cuda" else "cpu"

    @property
    def usual_precision(self) -> Precision:
        """bf16 on a GPU; a CPU computes in fp32."""
        return "bf16" if self.device == "cuda" else "fp32"

    def require_room(self, ranks: int, oversubscribe: bool, nodes: int = 1) -> None:
        """Raises UsageError for several nodes, and for more ranks than devices, or than cores unless asked for."""
        if nodes > 1:
            raise UsageError(
                f"{ranks} ranks on {nodes} nodes need the kubernetes or the slurm launcher; this one has one node "
                "(choose sizes that fit it with --size, or ask for fewer --ranks)"
            )
        if ranks <= self.max_ranks:
            return
        if self.device == "cuda":
            raise UsageError(f"{ranks} ranks need {ranks} GPUs, this machine has {self.max_ranks}")
        if not oversubscribe:
            raise UsageError(
                f"{ranks} ranks on {self.max_ranks} cores would time the scheduler, not the backend; "
                "ask for fewer ranks, or say --oversubscribe"
            )

    def require_memory(self, manifests: Iterable[Manifest]) -> None:
        """Raises UsageError for a run whose ranks need more than the host has even at their floor.

        On a GPU such a run fails and tells; on a CPU it would take the machine with it.
        """
        if self.host_memory_bytes is None:
            return
        for manifest in manifests:
            layout, precision = manifest.layout, manifest.measure.precision
            floor = memory_floor(manifest.size, manifest.workload, manifest.work, layout, precision).bytes
            needed = floor * layout.devices_per_node
            if needed > self.host_memory_bytes:
                raise UsageError(
                    f"{manifest.backend.name} {manifest.size.name} on {layout.ranks} ranks needs at least "
                    f"{needed / 2**30:,.1f} GiB of memory, this machine has {self.host_memory_bytes / 2**30:,.1f} GiB; "
                    "choose a smaller size"
                )

    def versions(self, backend: str) -> dict[str, str | None]:
        """Version of each package of a backend in the stack's interpreter; None for one that is missing.

        What native kernels alone need is among them where it is there.
        """
        driver = find_backend(backend)
        native = native_packages(driver)
        return without_missing(native, stack_versions(self.python, driver.packages + native))

    def stack_errors(self, backend: str) -> list[str]:
        """Why the stack cannot be measured although no package is missing; empty when it can."""
        return find_backend(backend).stack_errors(self.python)

    def images(self, backends: Iterable[str]) -> dict[str, str | None]:
        """What names the image that a backend's runs are in; ``None`` on a bare host."""
        return dict.fromkeys(backends, os.environ.get("SUITE_IMAGE"))

    def where(self, backend: str) -> str:
        """What holds a backend's stack, in words for a message."""
        return self.python

    def stacks(self, backends: Iterable[str]) -> dict[str, dict[str, str]]:
        """Versions of each backend's packages in the stack's interpreter.

        Raises UsageError when one is missing or the stack cannot be measured.
        """
        found = {}
        for name in backends:
            versions = self.versions(name)
            missing = [package for package, version in versions.items() if version is None]
            if missing:
                raise UsageError(
                    f"{name} needs {', '.join(missing)}, which {self.where(name)} does not have; install it there or "
                    f"name another {self.holder} (`suite doctor` shows the rest)"
                )
            errors = self.stack_errors(name)
            if errors:
                raise UsageError(f"{name} cannot run on the stack of {self.where(name)}: {'; '.join(errors)}")
            found[name] = {package: version for package, version in versions.items() if version is not None}
        return found

    def lacks(self, ranks: int, nodes: int, backends: Iterable[str]) -> tuple[str, ...]:
        """What a run would need that is not here, one line each: for a plan that is only looked at."""
        needs: list[Callable[[], object]] = [partial(self.require_room, ranks, True, nodes)]
        needs += [partial(self.stacks, (name,)) for name in backends]
        lines = [] if self.max_ranks else ["no NVIDIA driver shows a GPU: the plan knows no device memory"]
        for need in needs:
            try:
                need()
            except UsageError as error:
                lines.append(str(error))
        return tuple(lines)

    def found_stacks(self, backends: Iterable[str]) -> dict[str, dict[str, str]]:
        """As ``stacks``, with what is there of each; for a plan that is only looked at."""
        return {
            name: {package: version for package, version in self.versions(name).items() if version is not None}
            for name in backends
        }


def without_missing(optional: tuple[str, ...], versions: dict[str, str | None]) -> dict[str, str | None]:
    """The versions without those packages of ``optional`` that are not there."""
    return {package: version for package, version in versions.items() if version is not None or package not in optional}


def smallest_memory(gpus: Iterable[LocalDevice]) -> int | None:
    """Bytes of the smallest device; ``None`` where one does not tell, as those that share the host's memory."""
    sizes = [gpu.memory_bytes for gpu in gpus]
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


def require_device_name(device: str) -> None:
    """Raises UsageError unless it is one that ``--device`` takes."""
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device is auto, cpu or cuda, not {device!r}")


def look_at_machine(python: str, device: str, planning: bool = False) -> Machine:
    """Choose the device: ``auto`` takes CUDA where a driver shows a GPU. Raises UsageError when it is not there.

    ``planning``: nothing is run, so CUDA that is asked for need not be there; the machine has no place then.
    """
    import psutil

    require_device_name(device)
    gpus = local_devices() if device != "cpu" else ()
    if gpus or (planning and device == "cuda"):
        return Machine(
            python=python,
            device="cuda",
            max_ranks=len(gpus),
            device_memory_bytes=smallest_memory(gpus),
            device_name=gpus[0].name if len({gpu.name for gpu in gpus}) == 1 else None,
        )
    if device == "cuda":
        raise UsageError("--device cuda: no NVIDIA driver shows a GPU here (`suite doctor` says what it looked for)")
    cores = len(psutil.Process().cpu_affinity())
    memory = psutil.virtual_memory().total
    return Machine(python=python, device="cpu", max_ranks=cores, device_memory_bytes=None, host_memory_bytes=memory)
