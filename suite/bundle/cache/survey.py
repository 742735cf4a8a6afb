"""All bundles of some folders from one look at each, with what the file system says of their files: where these are as
they were, they need not be read again to know them."""

import hashlib
import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from suite.bundle.walk import LOCK, NO_EVIDENCE, RECORD, places_once

#: Files changed so shortly before are not told from files changed just after: clocks of file systems tick.
SETTLED_SECONDS = 3.0
_MOST_FILES, _DEEPEST = 4096, 8
#: Whether the record is still what its evidence gives depends on its file too.
_LEFT_OUT = NO_EVIDENCE - {RECORD}


@dataclass(frozen=True)
class Signature:
    """``value`` is another one when a file was written, moved, replaced, added or removed.

    It hashes name, device, inode, mode, size, and the times of the last change of content and of inode, the latter of
    which no program can set. ``is_settled``: the last change was long enough ago that one more would have another time.
    """

    value: bytes
    is_settled: bool


def signature_of(folder: str, entries: Iterable[os.DirEntry[str]] | None = None) -> Signature | None:
    """Of the files of evidence and the record; null where there is anything but files and folders, or very many.

    ``entries``: what lies in the folder, where that was listed a moment ago.
    """
    now = time.time_ns()
    facts: list[tuple] = []
    newest, waiting = 0, [""]
    try:
        while waiting:
            prefix = waiting.pop()
            if entries is None:
                with os.scandir(f"{folder}/{prefix}") as found:
                    entries = list(found)
            for entry in entries:
                name = prefix + entry.name
                if name in _LEFT_OUT or entry.name[0] == ".":
                    continue
                status = entry.stat(follow_symlinks=False)
                mode = status.st_mode
                if stat.S_ISDIR(mode):
                    waiting.append(f"{name}/")
                elif not stat.S_ISREG(mode):
                    return None
                else:
                    content, any_change = status.st_mtime_ns, status.st_ctime_ns
                    newest = max(newest, content, any_change)
                    facts.append((name, status.st_dev, status.st_ino, mode, status.st_size, content, any_change))
            entries = None
            if len(facts) + len(waiting) > _MOST_FILES or prefix.count("/") > _DEEPEST:
                return None
    except OSError:
        return None
    value = hashlib.blake2b(repr(sorted(facts)).encode(errors="surrogateescape"), digest_size=16).digest()
    return Signature(value, newest < now - SETTLED_SECONDS * 1e9)


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
    whole = cache(os.path.abspath)
    for root, place in places_once(paths, mark):
        if not place.is_bundle:
            marked.append(Path(place.path))
            continue
        plain = whole(root)
        parent, name = os.path.split(os.path.join(plain, place.below) if place.below else plain)
        has_lock = any(entry.name == LOCK for entry in place.entries)
        bundles.append(Surveyed(place.path, parent, name, signature_of(place.path, place.entries), has_lock))
    bundles.sort(key=lambda one: (os.path.basename(one.path), one.path))
    return bundles, sorted(marked, key=lambda path: (path.name, str(path)))
