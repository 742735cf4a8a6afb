"""Reaching the runtime that DOCKER_HOST, DOCKER_CONTEXT or Docker's own configuration names, also by ssh."""

import atexit
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import docker
from docker import APIClient
from docker.context import ContextAPI
from docker.context.config import get_current_context_name
from docker.errors import DockerException
from pydantic import Field

from suite.launch.docker.conclude import reason_of
from suite.spec.base import Frozen, UsageError

ASK_SECONDS, CALL_SECONDS, SSH_SECONDS = 10, 120, 30
DEFAULT_HOST = "unix:///var/run/docker.sock"


class RuntimeFacts(Frozen):
    """What a run's record holds of the container runtime it ran on."""

    name: str
    version: str
    api_version: str
    runtime: str = Field(description="the OCI runtime it uses, with its version where known")
    storage: str | None
    cgroups: str | None = Field(description="version of the host's control groups")
    rootless: bool
    remapped: bool = Field(description="users of a container have other ids on the host (userns-remap)")
    remote: bool = Field(description="on another machine, or to be treated so: bundles are copied")


@dataclass(frozen=True)
class Runtime:
    """A connection to a container runtime, its facts, and all that it says of its host (GET /info)."""

    api: APIClient
    host: str
    facts: RuntimeFacts
    architecture: str
    info: Mapping[str, Any]


def connect(copy_back: bool = False) -> Runtime:
    """Reach the container runtime; ``copy_back``: as one that does not see this host's folders. Raises UsageError."""
    host = chosen_host()
    try:
        if host.startswith("ssh://"):
            api = APIClient(base_url=open_tunnel(host), timeout=ASK_SECONDS)
        else:
            api = docker.from_env(timeout=ASK_SECONDS).api
        version, info = api.version(), api.info()
    except (DockerException, OSError, ValueError) as error:  # ValueError: of an address that is none
        raise UsageError(
            f"no container runtime answers at {host}: {reason_of(error)}; start it, join the group that owns its "
            "socket, or name another with DOCKER_HOST or DOCKER_CONTEXT"
        ) from error
    api.timeout = CALL_SECONDS
    spoken = str(version.get("ApiVersion", "0"))
    if tuple(map(int, re.findall(r"\d+", spoken))) < (1, 40):  # the oldest that can be asked for GPUs
        raise UsageError(f"the runtime at {host} is too old: its API is {spoken}, not 1.40 (Docker 19.03); update it")
    return _connected(api, host, version, info, copy_back)


def chosen_host() -> str:
    """Address of the runtime that Docker's own command line would use. Raises UsageError for an unknown context."""
    if os.environ.get("DOCKER_HOST"):
        return os.environ["DOCKER_HOST"]
    name = os.environ.get("DOCKER_CONTEXT") or get_current_context_name()
    if name == "default":
        return DEFAULT_HOST
    try:
        context = ContextAPI.get_context(name)
    except Exception as error:  # the SDK raises this very class for a file of a context that is none
        raise UsageError(f"the Docker context {name!r} cannot be read: {' '.join(str(error).split())}") from error
    if context is None:
        raise UsageError(f"there is no Docker context {name!r}; `docker context ls` lists them")
    return context.Host or DEFAULT_HOST


def _connected(api: APIClient, host: str, version: dict[str, Any], info: dict[str, Any], copy_back: bool) -> Runtime:
    options = {option for entry in info.get("SecurityOptions") or () for option in entry.split(",")}
    versions = {part.get("Name"): part.get("Version") for part in version.get("Components") or ()}
    runtime = str(info.get("DefaultRuntime", "runc"))
    usual = (version.get("Platform") or {}).get("Name") or "Docker Engine"
    facts = RuntimeFacts(
        name="Podman Engine" if "Podman Engine" in versions else usual,  # so it calls itself among its parts only
        version=str(version.get("Version")),
        api_version=str(version.get("ApiVersion")),
        runtime=f"{runtime} {versions.get(runtime) or ''}".strip(),
        storage=info.get("Driver"),
        cgroups=info.get("CgroupVersion"),
        rootless="name=rootless" in options or info.get("Rootless") is True,  # Docker's word, Podman's
        remapped="name=userns" in options,
        remote=copy_back or not host.startswith("unix://") or info.get("Name") != platform.node(),
    )
    return Runtime(api, host, facts, str(version.get("Arch", "")), info)


def open_tunnel(host: str) -> str:
    """Address of a local socket that leads to the runtime of ``ssh://[user@]host[:port][/socket]``. Raises OSError,
    also where no key or agent lets us in: nobody can be asked for a password."""
    folder = Path(tempfile.mkdtemp(prefix="suite-ssh-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    socket = folder / "engine.sock"
    address = urlsplit(host)
    command = ["ssh", "-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=15"]
    command += ["-L", f"{socket}:{address.path.rstrip('/') or '/var/run/docker.sock'}"]
    command += ["-l", address.username] if address.username else []
    command += ["-p", str(address.port)] if address.port else []
    command += ["--", address.hostname or "", "cat"]
    # in a session of its own, so that Ctrl-C is not its end; it ends when nobody holds its standard input
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    atexit.register(process.terminate)
    give_up = time.monotonic() + SSH_SECONDS
    while not socket.exists():
        if process.poll() is not None or time.monotonic() > give_up:
            process.kill()
            raise ConnectionError(process.communicate()[1].decode(errors="replace").strip() or "ssh does not answer")
        time.sleep(0.02)
    return f"unix://{socket}"
