"""All bundles of some folders with the signatures of their files, from one look at each folder."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from suite.bundle.cache.signature import Signature, signature_of
from suite.bundle.walk import LOCK, places_once


class Surveyed(NamedTuple):
    """A bundle. ``path``: below the path that was searched; ``parent``: the whole path of the folder that it lies in,
    ``name`` its own there. ``has_lock``: only then can somebody hold the run."""

    path: str
    parent: str
    name: str
    signature: Signature | None
    has_lock: bool


def survey(paths: Iterable[Path], mark: str | None = None) -> tuple[list[Surveyed], list[Path]]:
    """As ``suite.bundle.store.find_marked``, which gives the same in the same order, with what the file system says."""
    bundles: list[Surveyed] = []
    marked: list[Path] = []
    for root, place in places_once(paths, mark):
        if not place.is_bundle:
            marked.append(Path(place.path))
            continue
        plain = os.path.abspath(root)
        parent, name = os.path.split(os.path.join(plain, place.below) if place.below else plain)
        has_lock = any(entry.name == LOCK for entry in place.entries)
        bundles.append(Surveyed(place.path, parent, name, signature_of(place.path, place.entries), has_lock))
    bundles.sort(key=lambda one: (_name(one.path), one.path))
    return bundles, sorted(marked, key=lambda path: (path.name, str(path)))


def _name(path: str) -> str:
    """As ``Path(path).name``."""
    return "" if path == "." else path.rpartition("/")[2]
