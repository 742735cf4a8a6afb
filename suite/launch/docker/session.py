"""Whose a container is: labels of the driver's process; short containers; removal of what a dead driver left."""

import os
import re
import secrets
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import psutil
from docker import APIClient
from docker.errors import APIError
from requests.exceptions import ConnectionError as NoAnswer

from suite.spec.base import UsageError

ANSWER_SECONDS = 120
#: under SELinux neither the caller's folder nor the GPUs carry a container's label
SECURITY = ["no-new-privileges", "label=disable"]
_MOST_BYTES = 64 << 20
RUN_LABEL, PLAN_LABEL, SESSION_LABEL, DRIVER_LABEL = "suite.run", "suite.plan", "suite.session", "suite.driver"


@cache
def session_id() -> str:
    """A name for this process that no other one has."""
    return secrets.token_hex(6)


def this_driver() -> str:
    """The label of this process, which no other one has: kernel, space of process ids, id, and start in ticks."""
    return f"{_here()}/{os.getpid()}/{_start_ticks(os.getpid()) or ''}"


def is_dead(label: str) -> bool:
    """Whether the driver that made a label has certainly ended. Of one of another kernel or space nothing is known."""
    made_by = re.fullmatch(r"([^/]+/\d+)/(\d{1,10})/(\d+)", label)
    return made_by is not None and made_by[1] == _here() and _start_ticks(int(made_by[2])) != made_by[3]


def remove_orphans(api: APIClient, is_local: bool) -> int:
    """Remove containers of drivers that are dead, with their volumes; how many. Raises DockerException.

    On a local runtime one that does not run and is older than this host's boot is a leftover as well, whoever made it.
    """
    removed = 0
    for entry in api.containers(all=True, filters={"label": DRIVER_LABEL}):
        label = entry.get("Labels", {}).get(DRIVER_LABEL, "")
        is_left = is_local and entry.get("State") != "running" and not label.startswith(f"{_boot()}/")
        if is_dead(label) or (is_left and entry.get("Created", 0) < psutil.boot_time()):
            remove_container(api, entry["Id"])
            removed += 1
    return removed


def ask(api: APIClient, image: str, command: Sequence[str], **host: Any) -> bytes:
    """Standard output of a command in a short container, without network and rights. ``host``: more of its HostConfig.

    Raises DockerException, and UsageError where the command fails, does not end or prints too much.
    """
    body = {
        "Image": image,
        "Entrypoint": list(command),
        "Cmd": [],
        "Env": ["HOME=/tmp", "NVIDIA_DRIVER_CAPABILITIES=utility"],
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": {SESSION_LABEL: session_id(), DRIVER_LABEL: this_driver()},
        "HostConfig": {
            "CapDrop": ["ALL"],
            "SecurityOpt": SECURITY,
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "Tmpfs": {"/tmp": ""},
            **host,
        },
    }
    container = api.create_container_from_config(body)["Id"]
    try:
        api.start(container)
        code = api.wait(container, timeout=ANSWER_SECONDS)["StatusCode"]
        if code != 0:
            error = api.logs(container, stdout=False, stderr=True, tail=3).decode(errors="replace")
            raise UsageError(f"{command[0]} in {image} ended with exit code {code}: {' '.join(error.split())}")
        data = bytearray()
        for piece in api.logs(container, stdout=True, stderr=False, stream=True, follow=False):
            data += piece
            if len(data) > _MOST_BYTES:
                raise UsageError(f"{command[0]} in {image} prints more than the {_MOST_BYTES} bytes that are read")
        return bytes(data)
    except NoAnswer as error:
        raise UsageError(f"{command[0]} in {image} did not answer in {ANSWER_SECONDS} s") from error
    finally:
        remove_container(api, container)


def remove_container(api: APIClient, container: str) -> None:
    """Kill and remove, with its volume; one that is gone, or is being removed, is as good as removed."""
    try:
        api.remove_container(container, force=True, v=True)
    except APIError as error:
        if error.status_code not in (404, 409):
            raise


def _boot() -> str:
    with suppress(OSError):  # a sandbox's kernel may not tell: such a driver is never taken for dead
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _here() -> str:
    """The kernel and the space of process ids."""
    return f"{_boot()}/{os.stat('/proc/self/ns/pid').st_ino}"


def _start_ticks(pid: int) -> str | None:
    """When a process began, in clock ticks since boot; None when there is none of this id."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
