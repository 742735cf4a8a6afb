"""Asking an image or a runtime something by a short container."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from suite.launch.docker.connection import Runtime
from suite.launch.docker.images import ImageFacts
from suite.launch.docker.patterns import OTHER_IMAGE, essence
from suite.launch.docker.session import short_container
from suite.launch.image_paths import PYTHON
from suite.launch.probe import ASK_VERSIONS
from suite.spec.base import UsageError

PROBE_SECONDS = 60


def ask(runtime: Runtime, image: str, command: Sequence[str], **host: Any) -> str:
    """Standard output of a command in a container of its own. Raises DockerException, UsageError when it fails.

    ``host``: fields of the container's HostConfig.
    """
    from requests.exceptions import ConnectionError as NoAnswer

    body = {
        "Image": image,
        "Entrypoint": list(command),
        "Cmd": [],
        "Env": ["HOME=/tmp", "NVIDIA_DRIVER_CAPABILITIES=utility"],
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "CapDrop": ["ALL"],
            "SecurityOpt": ["label=disable"] if runtime.selinux else [],
            "NetworkMode": "none",
            **host,
        },
    }
    with short_container(runtime.api, body) as container:
        try:
            runtime.api.start(container)
            code = runtime.api.wait(container, timeout=PROBE_SECONDS)["StatusCode"]
            printed = runtime.api.logs(container, stdout=True, stderr=False).decode(errors="replace")
            if code != 0:
                error = runtime.api.logs(container, stdout=False, stderr=True, tail=3).decode(errors="replace")
                raise UsageError(f"{command[0]} in {image} ended with exit code {code}: {' '.join(error.split())}")
            return printed
        except NoAnswer as error:
            raise UsageError(f"{command[0]} in {image} did not answer in {PROBE_SECONDS} s") from error


def image_versions(
    runtime: Runtime, image: ImageFacts, python: str, packages: Sequence[str], optional: Sequence[str] = ()
) -> dict[str, str | None]:
    """Version of each package in the image, by its labels, or by asking its interpreter where a label is missing.

    A package of ``optional`` is there only where the image has it.
    Raises UsageError when it has no such interpreter.
    """
    from docker.errors import APIError

    if all(package in image.stack for package in packages) and python == PYTHON:
        return {package: image.stack[package] for package in (*packages, *optional) if package in image.stack}
    try:
        found = json.loads(ask(runtime, image.id, (python, "-c", ASK_VERSIONS, *packages, *optional)))
    except APIError as error:
        why = essence(str(error.explanation or error))
        raise UsageError(f"{image.reference} cannot tell the versions of its stack: {why}; {OTHER_IMAGE}") from error
    there = [package for package in optional if found.get(package) is not None]
    return {package: found.get(package) for package in (*packages, *there)}
