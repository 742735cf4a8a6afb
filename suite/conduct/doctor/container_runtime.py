"""The container runtime as `suite doctor` sees it: what answers, whether it offers GPUs, and which images it holds."""

from __future__ import annotations

import shutil
from typing import NamedTuple

from suite.launch.docker.connection import Runtime, connect
from suite.launch.docker.gpus import access_of
from suite.spec.base import UsageError
from suite.spec.images import images
from suite.spec.version import suite_version

#: what the runtime runs before a container starts, where GPUs come by NVIDIA's hook
NVIDIA_HOOK = "nvidia-container-runtime-hook"


class RuntimeLook(NamedTuple):
    """What was found, and what to do where something is not there; no runtime is no fault, runs can do without."""

    is_there: bool
    found: str
    advice: str | None


def look_at_runtime() -> RuntimeLook:
    """Ask the runtime that Docker's own settings name."""
    try:
        runtime = connect()
    except UsageError as error:
        return RuntimeLook(False, "none", f"{error}; only --launcher docker needs one")
    held = _images(runtime)
    advice = None if held else "build an image: suite images build engines"
    where = " on another machine" if runtime.facts.remote else ""
    facts = runtime.facts
    found = f"{facts.name} {facts.version}{where}, {_gpus(runtime)}, images: {', '.join(held) or 'none'}"
    return RuntimeLook(bool(held), found, advice)


def _gpus(runtime: Runtime) -> str:
    if access_of(runtime, "auto") == "cdi":
        return "GPUs by CDI"
    has_hook = not runtime.facts.remote and shutil.which(NVIDIA_HOOK) is not None
    if has_hook or "nvidia" in runtime.runtimes:
        return "GPUs by NVIDIA's container toolkit"
    return "no sign of GPUs"


def _images(runtime: Runtime) -> list[str]:
    """Images of this version of the suite's catalogue."""
    wanted = {image.tag(suite_version()) for image in images().values()}
    tags = {tag for image in runtime.api.images() for tag in image.get("RepoTags") or ()}
    return sorted(wanted & tags)
