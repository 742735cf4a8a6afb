"""What a user may set of the containers that runs are started in."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from suite.launch.node import limit_number
from suite.spec.base import Frozen

GpuAccess = Literal["auto", "nvidia", "cdi"]
Pull = Literal["missing", "never", "always"]

#: NCCL pins memory for its buffers and shares others between ranks; Docker's own limits are far too small for both.
GPU_ULIMITS = {"memlock": -1}
ULIMITS = {"stack": 64 << 20}
SHM_BYTES = 16 << 30
_CPUSET = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_GPU_ID = re.compile(r"\d+|(GPU|MIG)-[0-9A-Za-z/-]+")


def _known_limit(name: str) -> str:
    try:
        limit_number(name)
    except KeyError as error:
        raise ValueError(f"there is no limit {name!r}; memlock, stack and nofile are some") from error
    return name


def _cpuset(text: str) -> str:
    if not _CPUSET.fullmatch(text):
        raise ValueError(f"{text!r} is no set of CPUs; write 0-7 or 0,2,4-5")
    return text


def _gpu_ids(ids: tuple[str, ...]) -> tuple[str, ...]:
    for name in ids:
        if not _GPU_ID.fullmatch(name):
            raise ValueError(f"{name!r} is no GPU id; write an index or a UUID such as GPU-8f6a...")
        if ids.count(name) > 1:
            raise ValueError(f"{name} is named twice")
    return ids


class DockerSettings(Frozen):
    """How a session's containers are made. ``None`` leaves the choice to the launcher."""

    gpu_ids: Annotated[tuple[str, ...], AfterValidator(_gpu_ids)] = Field(
        default=(), description="indices or UUIDs of the GPUs that may be used; empty: any"
    )
    gpu_access: GpuAccess = "auto"
    shm_bytes: int = Field(default=SHM_BYTES, gt=0, description="size of /dev/shm")
    ipc: Literal["private", "host"] = "private"
    ulimits: dict[Annotated[str, AfterValidator(_known_limit)], Annotated[int, Field(ge=-1, le=(1 << 63) - 1)]] = Field(
        default={}, description="limits beyond the launcher's own or in their place; -1: none"
    )
    cpuset: Annotated[str, AfterValidator(_cpuset)] | None = Field(default=None, description="CPUs of a run")
    network: str = Field(default="bridge", min_length=1)
    memory_bytes: int | None = Field(default=None, ge=6 << 20, description="host memory of one rank")
    env: dict[str, str] = Field(default={}, description="variables of the ranks")
    pull: Pull = "missing"
    copy_back: bool = Field(
        default=False, description="copy the bundle back even from a container runtime on this host"
    )

    def limits(self, has_gpus: bool) -> dict[str, int]:
        """Every limit of a container, the user's word last."""
        return {**ULIMITS, **(GPU_ULIMITS if has_gpus else {}), **self.ulimits}
