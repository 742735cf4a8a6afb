"""What a user may set of the containers that runs are started in, and the options that set it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import typer
from pydantic import AfterValidator, Field

from suite.launch.processes import limit_number
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


@dataclass(frozen=True)
class DockerOptions:
    """How containers are made, on which of the host's devices."""

    HEADING: ClassVar = "Containers"

    image: Annotated[str | None, typer.Option(help="docker: image to run in [default: the backend's]")] = None
    pull: Annotated[str, typer.Option(metavar="missing|never|always", help="docker: when to pull the image")] = (
        "missing"
    )
    gpu_ids: Annotated[str | None, typer.Option(help="which of the host's GPUs, by index or UUID: 0,3")] = None
    gpu_access: Annotated[
        str, typer.Option(metavar="auto|nvidia|cdi", help="docker: how to ask for GPUs; nvidia is its hook")
    ] = "auto"
    shm_size: Annotated[str, typer.Option(help="docker: size of /dev/shm")] = "16g"
    ipc: Annotated[
        str, typer.Option(metavar="private|host", help="docker: shared memory of its own, or the host's")
    ] = "private"
    ulimit: Annotated[
        list[str] | None, typer.Option(help="docker: NAME=VALUE, e.g. memlock=8388608; repeat for several")
    ] = None
    cpuset: Annotated[str | None, typer.Option(help="docker: CPUs of a run, e.g. 0-15")] = None
    network: Annotated[str, typer.Option(help="docker: bridge, host, none, or a network's name")] = "bridge"
    memory: Annotated[str | None, typer.Option(help="docker: host memory of one rank, e.g. 64g")] = None
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for every rank, or NAME as it is here; repeat for several")
    ] = None
    copy_back: Annotated[
        bool,
        typer.Option(
            "--copy-back",
            help="docker: copy results instead of sharing the folder (always so with a remote container runtime)",
        ),
    ] = False

    def settings(self) -> DockerSettings:
        """Raises UsageError or ValidationError for values that no container runtime takes."""
        from suite.spec.typed import same_named, size

        given = {
            **same_named(self, DockerSettings),
            "gpu_ids": tuple(self.gpu_ids.split(",")) if self.gpu_ids else (),
            "shm_bytes": size("--shm-size", self.shm_size),
            "ulimits": dict(map(_ulimit, self.ulimit or ())),
            "memory_bytes": size("--memory", self.memory) if self.memory else None,
            "env": dict(map(_variable, self.env or ())),
        }
        return DockerSettings.model_validate(given)


def _ulimit(text: str) -> tuple[str, int | str]:
    name, _, value = text.partition("=")
    return name, -1 if value == "unlimited" else value


def _variable(text: str) -> tuple[str, str]:
    from suite.spec.base import UsageError

    name, equals, value = text.partition("=")
    if not name or (not equals and name not in os.environ):
        raise UsageError(f"--env {text}: write NAME=VALUE, or the name of a variable that is set here")
    return name, value if equals else os.environ[name]
