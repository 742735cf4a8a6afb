"""What else uses the devices of this host: asked by the driver before it starts anything that wants them alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from suite.launch.probe import nvml_of_this_host, usable_cpus
from suite.spec.base import UsageError

#: what ranks are told, so that they look again on the node where they run (suite.worker.idle)
REQUIRE_IDLE = {"SUITE_REQUIRE_IDLE": "1"}
#: as the ranks have it: what a driver may keep for itself, and what is no work
_USED_BYTES, _UTILISATION_PERCENT = 1 << 30, 10
#: of the CPUs: beyond it `suite doctor` warns too
_LOAD_SHARE = 0.5


def require_idle_gpus(uuids: Sequence[str]) -> None:
    """Raises UsageError, with every process that computes on one of these GPUs or holds their memory.

    A GPU that the driver does not know by this name, such as a slice, is left to the ranks.
    """
    busy = list(_occupants(uuids))
    if busy:
        raise UsageError(f"--require-idle: {'; '.join(busy)}; wait for it to end, or choose other GPUs with --gpu-ids")


def require_idle_cpus() -> None:
    """Raises UsageError where more than half of the CPUs have had work in the last minute."""
    cpus, load = len(usable_cpus()), os.getloadavg()[0]
    if load > _LOAD_SHARE * cpus:
        raise UsageError(
            f"--require-idle: the load of the last minute is {load:.1f} on {cpus} CPUs; wait, or leave the option out"
        )


def _occupants(uuids: Sequence[str]) -> Iterator[str]:
    with nvml_of_this_host() as nvml:
        if nvml is None:
            return
        for uuid in uuids:
            with suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                lines = list(_occupants_of(nvml, handle))
                if lines:
                    yield f"GPU {nvml.nvmlDeviceGetIndex(handle)} is used by {', '.join(lines)}"


def _occupants_of(nvml: ModuleType, handle: Any) -> Iterator[str]:
    """The processes, or where none is shown, that something is there."""
    running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    for process in running:
        held = "" if process.usedGpuMemory is None else f" with {process.usedGpuMemory / 2**30:.1f} GiB"
        yield f"process {process.pid}{_name(process.pid)}{held}"
    if not running:
        used = nvml.nvmlDeviceGetMemoryInfo(handle).used
        if used > _USED_BYTES:
            yield f"somebody who is not shown, with {used / 2**30:.1f} GiB"
        busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        if busy > _UTILISATION_PERCENT:
            yield f"somebody who is not shown, {busy} % of the time"


def _name(pid: int) -> str:
    """The program's name in brackets, where this host shows it."""
    with suppress(OSError):
        return f" ({ascii(Path(f'/proc/{pid}/comm').read_text().strip())[1:-1]})"
    return ""
