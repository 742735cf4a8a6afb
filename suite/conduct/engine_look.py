"""The container engine as `suite doctor` sees it: what answers, whether it offers GPUs, and which images it holds."""

from __future__ import annotations

import shutil
from typing import NamedTuple

from suite.launch.docker_engine.connection import Engine, connect
from suite.launch.docker_engine.gpus import access_of
from suite.spec.base import UsageError
from suite.spec.images import images
from suite.spec.version import suite_version

#: what the engine runs before a container starts, where GPUs come by NVIDIA's hook
NVIDIA_HOOK = "nvidia-container-runtime-hook"


class EngineLook(NamedTuple):
    """What was found, and what to do where something is not there; no engine is no fault, runs can do without."""

    is_there: bool
    found: str
    advice: str | None


def look_at_engine() -> EngineLook:
    """Ask the engine that Docker's own settings name."""
    try:
        engine = connect()
    except UsageError as error:
        return EngineLook(False, "none", f"{error}; only --launcher docker needs one")
    held = _images(engine)
    advice = None if held else "build an image: suite images build engines"
    where = " on another machine" if engine.facts.remote else ""
    facts = engine.facts
    found = f"{facts.name} {facts.version}{where}, {_gpus(engine)}, images: {', '.join(held) or 'none'}"
    return EngineLook(bool(held), found, advice)


def _gpus(engine: Engine) -> str:
    if access_of(engine, "auto") == "cdi":
        return "GPUs by CDI"
    has_hook = not engine.facts.remote and shutil.which(NVIDIA_HOOK) is not None
    if has_hook or "nvidia" in engine.runtimes:
        return "GPUs by NVIDIA's container toolkit"
    return "no sign of GPUs"


def _images(engine: Engine) -> list[str]:
    """Images of this version of the suite's catalogue."""
    wanted = {image.tag(suite_version()) for image in images().values()}
    tags = {tag for image in engine.api.images() for tag in image.get("RepoTags") or ()}
    return sorted(wanted & tags)
