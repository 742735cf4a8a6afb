"""What this machine and its stack interpreter offer to a request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from suite.backends.registry import find_backend
from suite.launch.probe import LocalDevice, local_devices, stack_versions
from suite.spec.base import Frozen, UsageError
from suite.spec.device import Precision


class Machine(Frozen):
    """The resolved device of a session, and how much of it there is."""

    python: str
    device: Literal["cpu", "cuda"]
    places: int
    device_memory_bytes: int | None

    @property
    def usual_workload(self) -> str:
        """The workload that is meant for such a device."""
        return "trlx-ds-chat" if self.device == "cuda" else "cpu"

    @property
    def usual_precision(self) -> Precision:
        """bf16 on a GPU; a CPU computes in fp32."""
        return "bf16" if self.device == "cuda" else "fp32"

    def require_room(self, ranks: int, oversubscribe: bool) -> None:
        """Raises UsageError when there are more ranks than devices, or than cores unless asked for."""
        if ranks <= self.places:
            return
        if self.device == "cuda":
            raise UsageError(f"{ranks} ranks need {ranks} GPUs, this machine has {self.places}")
        if not oversubscribe:
            raise UsageError(
                f"{ranks} ranks on {self.places} cores would time the scheduler, not the backend; "
                "ask for fewer ranks, or say --oversubscribe"
            )

    def stacks(self, backends: Iterable[str]) -> dict[str, dict[str, str]]:
        """Versions of each backend's packages in the stack's interpreter.

        Raises UsageError when one is missing or the stack cannot be measured.
        """
        found = {}
        for name in backends:
            driver = find_backend(name)
            versions = stack_versions(self.python, driver.packages)
            missing = [package for package, version in versions.items() if version is None]
            if missing:
                raise UsageError(
                    f"{name} needs {', '.join(missing)}, which {self.python} does not have; "
                    "install it there or name another interpreter with --python (`suite doctor` shows the rest)"
                )
            errors = driver.stack_errors(self.python)
            if errors:
                raise UsageError(f"{name} cannot run on the stack of {self.python}: {'; '.join(errors)}")
            found[name] = {package: version for package, version in versions.items() if version is not None}
        return found


def smallest_memory(gpus: Iterable[LocalDevice]) -> int | None:
    """Bytes of the smallest device; ``None`` where one does not tell, as those that share the host's memory."""
    sizes = [gpu.memory_bytes for gpu in gpus]
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


def look_at_machine(python: str, device: str) -> Machine:
    """Choose the device: ``auto`` takes CUDA where a driver shows a GPU. Raises UsageError when it is not there."""
    import psutil

    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"--device is auto, cpu or cuda, not {device!r}")
    gpus = local_devices() if device != "cpu" else ()
    if gpus:
        return Machine(
            python=python,
            device="cuda",
            places=len(gpus),
            device_memory_bytes=smallest_memory(gpus),
        )
    if device == "cuda":
        raise UsageError("--device cuda: no NVIDIA driver shows a GPU here (`suite doctor` says what it looked for)")
    cores = len(psutil.Process().cpu_affinity())
    return Machine(python=python, device="cpu", places=cores, device_memory_bytes=None)
