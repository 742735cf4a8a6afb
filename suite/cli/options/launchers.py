"""Options of every command that starts runs: where they are started, and how containers are made."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer

from suite.cli.options.reading import Python

if TYPE_CHECKING:
    from suite.conduct.planning.machine import Machine
    from suite.launch.docker.settings import DockerSettings
    from suite.launch.outcome import Launcher

LOCAL, DOCKER = "local", "docker"
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?")
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True)
class Where:
    """Where runs are started. Everything but the launcher and the interpreter is the docker launcher's."""

    launcher: Annotated[
        str, typer.Option(help="local, or docker: a container for each run", rich_help_panel="Where it runs")
    ] = LOCAL
    python: Python = None
    image: Annotated[
        str | None, typer.Option(help="docker: image to run in [default: the backend's]", rich_help_panel="Containers")
    ] = None
    pull: Annotated[
        str, typer.Option(help="docker: pull the image if missing, never or always", rich_help_panel="Containers")
    ] = "missing"
    gpus: Annotated[
        int | None, typer.Option(help="docker: how many of the host's GPUs may be used", rich_help_panel="Containers")
    ] = None
    gpu_ids: Annotated[
        str | None, typer.Option(help="docker: which GPUs, by index or UUID: 0,3", rich_help_panel="Containers")
    ] = None
    gpu_access: Annotated[
        str, typer.Option(help="docker: ask for GPUs by auto, nvidia (its hook) or cdi", rich_help_panel="Containers")
    ] = "auto"
    shm_size: Annotated[str, typer.Option(help="docker: size of /dev/shm", rich_help_panel="Containers")] = "16g"
    ipc: Annotated[str, typer.Option(help="docker: private or host", rich_help_panel="Containers")] = "private"
    ulimit: Annotated[
        list[str] | None,
        typer.Option(help="docker: NAME=VALUE, e.g. memlock=8388608; repeat for several", rich_help_panel="Containers"),
    ] = None
    cpuset: Annotated[
        str | None, typer.Option(help="docker: CPUs of a run, e.g. 0-15", rich_help_panel="Containers")
    ] = None
    network: Annotated[
        str, typer.Option(help="docker: bridge, host, none, or a network's name", rich_help_panel="Containers")
    ] = "bridge"
    memory: Annotated[
        str | None, typer.Option(help="docker: host memory of one rank, e.g. 64g", rich_help_panel="Containers")
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(
            help="docker: NAME=VALUE, or NAME as it is here; repeat for several", rich_help_panel="Containers"
        ),
    ] = None
    copy_back: Annotated[
        bool,
        typer.Option(
            "--copy-back",
            help="docker: copy results instead of sharing the folder (remote engines do)",
            rich_help_panel="Containers",
        ),
    ] = False

    def open(self, device: str, backends: Sequence[str], planning: bool = False) -> tuple[Machine, Launcher]:
        """The machine as its launcher sees it, and the launcher. Raises UsageError when it cannot be used."""
        from suite.conduct.planning.machine import look_at_machine
        from suite.launch.local import LocalLauncher
        from suite.spec.base import UsageError
        from suite.spec.names import nearest

        if self.launcher == LOCAL:
            self._require_no_docker_option()
            return look_at_machine(self.python or sys.executable, device, planning), LocalLauncher()
        if self.launcher != DOCKER:
            known = (LOCAL, DOCKER)
            raise UsageError(f"--launcher is local or docker, not {self.launcher!r}{nearest(self.launcher, known)}")
        from suite.conduct.running.containers import open_containers

        # the variable speaks of this machine's interpreter, not of the image's
        python = None if self.python == os.environ.get("SUITE_PYTHON") else self.python
        return open_containers(self._settings(), self.image, backends, device, python, _tell, planning)

    def _settings(self) -> DockerSettings:
        from suite.cli.options.reading import checked
        from suite.launch.docker.settings import DockerSettings

        given = {
            "gpus": self.gpus,
            "gpu_ids": tuple(self.gpu_ids.split(",")) if self.gpu_ids else (),
            "gpu_access": self.gpu_access,
            "shm_bytes": size(self.shm_size),
            "ipc": self.ipc,
            "ulimits": dict(map(_ulimit, self.ulimit or ())),
            "cpuset": self.cpuset,
            "network": self.network,
            "memory_bytes": size(self.memory) if self.memory else None,
            "env": dict(map(_variable, self.env or ())),
            "pull": self.pull,
            "copy_back": self.copy_back,
        }
        return checked(lambda: DockerSettings.model_validate(given))

    def _require_no_docker_option(self) -> None:
        """An option that would be passed over in silence is a mistake."""
        from suite.spec.base import UsageError

        ours = {"launcher", "python"}
        deaf = [
            field.name
            for field in fields(self)
            if field.name not in ours and getattr(self, field.name) != field.default
        ]
        if deaf:
            raise UsageError(
                f"--{deaf[0].replace('_', '-')} means nothing to the local launcher; say --launcher docker"
            )


HERE = Where()


def size(text: str) -> int:
    """``16g``, ``512m``, ``1.5GiB`` in bytes (units of 1024). Raises UsageError for anything else."""
    from suite.spec.base import UsageError

    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"{text!r} is no size; write 512m, 16g or 1.5g")
    return int(float(match.group(1)) * _SIZE_UNITS[match.group(2)])


def _ulimit(text: str) -> tuple[str, int | str]:
    name, _, value = text.partition("=")
    return name, -1 if value == "unlimited" else value


def _variable(text: str) -> tuple[str, str]:
    from suite.spec.base import UsageError

    name, given, value = text.partition("=")
    if not name or (not given and name not in os.environ):
        raise UsageError(f"--env {text}: write NAME=VALUE, or the name of a variable that is set here")
    return name, value if given else os.environ[name]


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
