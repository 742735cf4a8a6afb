"""How a run was started and in which image: runs of one manifest that differ in it are no repeats."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from suite.bundle.record import Record
from suite.report.facts.entry import Entry

_SHORT_DIGEST = len("sha256:") + 12


class LaunchSetting(NamedTuple):
    """Launcher and image; None where it is not known, or where there was no image."""

    launcher: str | None
    image: str | None

    def settings(self) -> dict[str, str]:
        """What tells two launch settings apart, as a table names it."""
        return {"launcher": self.launcher or "?", "image": _short(self.image) if self.image else "none"}


def launch_setting_of(record: Record) -> LaunchSetting:
    """By the driver's word of the image that ran, else the worker's (a container that the suite did not start)."""
    told = (record.environment.driver or {}).get("image")
    named = (told.get("digest") or told.get("id")) if isinstance(told, Mapping) else None
    image: Any = named or (record.environment.worker or {}).get("image")
    return LaunchSetting(record.run.launcher, image if isinstance(image, str) else None)


def assign_launch_settings(entries: Sequence[Entry]) -> list[LaunchSetting]:
    """The launch of each entry; one that never got to its launch shares that of its repeats, where they have one."""
    known = [launch_setting_of(entry.record) for entry in entries]
    of_manifest: dict[str, set[LaunchSetting]] = defaultdict(set)
    for entry, launch in zip(entries, known, strict=True):
        if launch.launcher is not None:
            of_manifest[entry.manifest.hash].add(launch)
    assigned = []
    for entry, launch in zip(entries, known, strict=True):
        repeats = of_manifest[entry.manifest.hash]
        is_lost = launch.launcher is None and len(repeats) == 1
        assigned.append(next(iter(repeats)) if is_lost else launch)
    return assigned


def _short(image: str) -> str:
    """The beginning of a digest; a name as it is."""
    repository, at, digest = image.rpartition("@")
    return f"{repository}{at}{digest[:_SHORT_DIGEST]}" if digest.startswith("sha256:") else image
