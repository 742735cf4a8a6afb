"""Reading a lock file: which version of which package it pins."""

from __future__ import annotations

import re
from pathlib import Path

from suite.backends.base import VLLM_PACKAGES
from suite.spec.images import Image

_PIN = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")


def normal(name: str) -> str:
    """A distribution's name as indexes compare it (PEP 503): ``nemo_toolkit`` and ``nemo-toolkit`` are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins_of(path: Path) -> dict[str, str]:
    """Normal name -> version of a lock file, in its order."""
    found = (_PIN.match(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {normal(match[1]): match[2] for match in found if match}


def labelled_packages(image: Image) -> tuple[str, ...]:
    """Packages whose versions an image is labelled with, as far as it has them: vLLM by the name of either build."""
    return tuple(
        name for package in image.packages for name in (VLLM_PACKAGES if package in VLLM_PACKAGES else (package,))
    )
