"""Options of the docker launcher: how a run's container is made."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer

if TYPE_CHECKING:
    from suite.launch.docker.settings import DockerSettings


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
        from suite.launch.docker.settings import DockerSettings
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
