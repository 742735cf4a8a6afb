"""What a user may set of the containers that runs are started in, and the options that set it."""

import os
import re
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from suite.launch.processes import limit_number
from suite.spec.base import Frozen, UsageError
from suite.spec.fields import Declared
from suite.spec.typed import pairs, size

GpuAccess = Literal["auto", "nvidia", "cdi"]
Pull = Literal["missing", "never", "always"]

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


def _listed(option: str, given: str | Sequence[str]) -> Sequence[str]:
    return given.split(",") if isinstance(given, str) else given


def _limits(option: str, texts: Sequence[str]) -> dict[str, int | str]:
    return {name: -1 if value == "unlimited" else value for name, value in pairs(option, texts).items()}


def _variables(option: str, texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or (not equals and name not in os.environ):
            raise UsageError(f"{option} {text}: write NAME=VALUE, or the name of a variable that is set here")
        found[name] = value if equals else os.environ[name]
    return found


class DockerSettings(Frozen):
    """How a session's containers are made, on which of the host's devices. ``None``: as the launcher chooses."""

    HEADING: ClassVar = "Containers"

    image: Annotated[str | None, Declared("--image", "docker: image to run in [default: the backend's]")] = None
    pull: Annotated[Pull, Declared("--pull", "docker: when to pull the image")] = "missing"
    gpu_ids: Annotated[
        tuple[str, ...],
        AfterValidator(_gpu_ids),
        Declared("--gpu-ids", "which of the host's GPUs, by index or UUID: 0,3", reads=_listed),
    ] = ()
    gpu_access: Annotated[GpuAccess, Declared("--gpu-access", "docker: how to ask for GPUs; nvidia is its hook")] = (
        "auto"
    )
    shm_bytes: Annotated[
        int, Declared("--shm-size", "docker: size of /dev/shm [default: 16g]", reads=size, metavar="SIZE")
    ] = Field(default=16 << 30, gt=0)
    ipc: Annotated[Literal["private", "host"], Declared("--ipc", "docker: shared memory of its own, or the host's")] = (
        "private"
    )
    ulimits: Annotated[
        dict[Annotated[str, AfterValidator(_known_limit)], Annotated[int, Field(ge=-1, le=(1 << 63) - 1)]],
        Declared(
            "--ulimit",
            "docker: NAME=VALUE, e.g. memlock=8388608; repeat for several",
            "list",
            reads=_limits,
            metavar="NAME=VALUE",
        ),
    ] = Field(default={}, description="limits beyond the launcher's own or in their place; -1: none")
    cpuset: Annotated[
        Annotated[str, AfterValidator(_cpuset)] | None, Declared("--cpuset", "docker: CPUs of a run, e.g. 0-15")
    ] = None
    network: Annotated[str, Declared("--network", "docker: bridge, host, none, or a network's name")] = Field(
        default="bridge", min_length=1
    )
    memory_bytes: Annotated[
        Annotated[int, Field(ge=6 << 20)] | None,
        Declared("--memory", "docker: host memory of one rank, e.g. 64g", reads=size, metavar="SIZE"),
    ] = None
    env: Annotated[
        dict[str, str],
        Declared(
            "--env", "NAME=VALUE for every rank, or NAME as it is here; repeat for several", "list", reads=_variables
        ),
    ] = Field(default={})
    copy_back: Annotated[
        bool,
        Declared(
            "--copy-back",
            "docker: copy results instead of sharing the folder (always so with a remote container runtime)",
            "flag",
        ),
    ] = False

    def limits(self, has_gpus: bool) -> dict[str, int]:
        """Every limit of a container, the user's word last."""
        # NCCL pins memory for its buffers, for which Docker's own limit is far too small
        return {"stack": 64 << 20, **({"memlock": -1} if has_gpus else {}), **self.ulimits}
