"""Which folders below a path are bundles, by their names alone: no file is opened."""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from suite.spec.base import UsageError

#: Folder below a runs folder where superseded runs lie; never searched.
ATTIC = "attic"
MANIFEST, RECORD, LOCK = "manifest.json", "record.json", "lock"
#: Of a results folder that holds a study (suite.tune), and the folder of its trials there.
STUDY, TRIALS = "study.json", "trials"
#: No evidence: what is derived from it, and who holds the run. Hidden files, drafts of these, are none either.
NO_EVIDENCE = frozenset((RECORD, LOCK))


class Place(NamedTuple):
    """A folder that was found. ``path``: as the path that was searched names it; ``below``: from there, empty for that
    path itself; ``entries``: what lies in it."""

    path: str
    below: str
    entries: Collection[os.DirEntry[str]]
    is_bundle: bool


def places(root: Path, mark: str | None) -> Iterator[Place]:
    """The bundles at and below ``root``, and the folders beside them that hold a file of the name ``mark``.

    A bundle is a folder with a manifest or an events folder. Symbolic links below the root are not followed, and
    folders named ``attic`` or hidden are skipped. Raises UsageError when the root is not a readable folder.
    """
    waiting = [""]
    while waiting:
        below = waiting.pop()
        folder = str(root / below)
        try:
            with os.scandir(folder) as found:
                entries = {entry.name: entry for entry in found}
        except NotADirectoryError as error:
            raise UsageError(f"{folder} is not a folder") from error
        except OSError as error:
            raise UsageError(f"cannot read {folder}: {(error.strerror or str(error)).lower()}") from error
        if MANIFEST in entries or ("events" in entries and os.path.isdir(os.path.join(folder, "events"))):
            yield Place(folder, below, entries.values(), True)
        elif mark is not None and mark in entries:
            yield Place(folder, below, entries.values(), False)
        else:
            waiting += [
                os.path.join(below, name)
                for name, entry in entries.items()
                if entry.is_dir(follow_symlinks=False) and name != ATTIC and not name.startswith(".")
            ]


def places_once(roots: Iterable[Path], mark: str | None) -> Iterator[tuple[Path, Place]]:
    """The ``places`` of all roots, each once, with the root that it was found below."""
    seen: set[str] = set()
    for root in roots:
        whole = os.path.realpath(root)
        for place in places(root, mark):
            real = os.path.join(whole, place.below) if place.below else whole  # no link leads there
            if real not in seen:
                seen.add(real)
                yield root, place


def find_studies(folders: Iterable[Path]) -> list[Path]:
    """The results folders at and below these that hold a study. Raises UsageError."""
    return sorted({Path(place.path) for folder in folders for place in places(folder, STUDY) if not place.is_bundle})


def is_trial(bundle: str) -> bool:
    """Whether a bundle is one of the trials of a study: a few iterations, which no figure is made of."""
    above, name = os.path.split(os.path.dirname(bundle))
    return name == TRIALS and os.path.isfile(os.path.join(above, STUDY))
