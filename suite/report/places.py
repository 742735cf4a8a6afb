"""How a run was started and in which image: runs of one manifest in two places are no repeats of each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from suite.bundle.record import Record
from suite.report.parts import Entry

_SHORT_DIGEST = len("sha256:") + 12


class Place(NamedTuple):
    """Launcher and image; None where it is not known, or where there was no image."""

    launcher: str | None
    image: str | None

    def settings(self) -> dict[str, str]:
        """What tells two places apart, as a table names it."""
        return {"launcher": self.launcher or "?", "image": _short(self.image) if self.image else "none"}


def place_of(record: Record) -> Place:
    """By the driver's word of the image that ran, else the worker's (a container that the suite did not start)."""
    told = (record.environment.driver or {}).get("image")
    named = (told.get("digest") or told.get("id")) if isinstance(told, Mapping) else None
    image: Any = named or (record.environment.worker or {}).get("image")
    return Place(record.run.launcher, image if isinstance(image, str) else None)


def assign_places(entries: Sequence[Entry]) -> list[Place]:
    """The place of each entry; one that never got to its launch shares that of its repeats, where they have one."""
    known = [place_of(entry.record) for entry in entries]
    of_manifest: dict[str, set[Place]] = defaultdict(set)
    for entry, place in zip(entries, known, strict=True):
        if place.launcher is not None:
            of_manifest[entry.manifest.hash].add(place)
    assigned = []
    for entry, place in zip(entries, known, strict=True):
        repeats = of_manifest[entry.manifest.hash]
        is_lost = place.launcher is None and len(repeats) == 1
        assigned.append(next(iter(repeats)) if is_lost else place)
    return assigned


def _short(image: str) -> str:
    """The beginning of a digest; a name as it is."""
    repository, at, digest = image.rpartition("@")
    return f"{repository}{at}{digest[:_SHORT_DIGEST]}" if digest.startswith("sha256:") else image
