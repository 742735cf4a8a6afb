"""What `suite rerun` needs beside a manifest to run it where it was run before."""

from __future__ import annotations

from collections.abc import Mapping

from suite.bundle.record import Record
from suite.launch.cluster.registry import CLUSTER_LAUNCHERS
from suite.report.facts.variants import LaunchSetting
from suite.spec.manifest import Manifest

#: starters that `suite submit slurm` knows by these words, with what it binds their ranks by
_STARTERS = ("srun", "torchrun")


def rerun_options(manifest: Manifest, launch: LaunchSetting, record: Record) -> tuple[str, ...]:
    """Words of a command line, unquoted: launcher and image, the variables that a manifest only tells of, and behind a
    ``--`` what the cluster's own command is to be told."""
    words: list[str] = []
    if launch.launcher == "docker" or launch.launcher in CLUSTER_LAUNCHERS:
        words += ["--launcher", launch.launcher]
    for name, value in manifest.measure.variables.items():
        words += ["--env", f"{name}={value}"]
    if launch.launcher in CLUSTER_LAUNCHERS:
        image = _image(record)
        words += ["--image", image] if image else []
        words += _of_the_start(launch.started or "")
    return tuple(words)


def _of_the_start(started: str) -> list[str]:
    first, *bound = started.split() or [""]
    if first not in _STARTERS:
        return []
    return ["--", "--starter", first, *(f"--{option}" for option in bound)]


def _image(record: Record) -> str | None:
    stated = (record.environment.driver or {}).get("image")
    named = stated.get("reference") if isinstance(stated, Mapping) else stated
    image = named or (record.environment.worker or {}).get("image")
    return image if isinstance(image, str) else None
