"""Removing bundles for good: under the run's lock, and never one that is being run or that a cluster has."""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from suite.bundle.drafts import at_work, clear_drafts, draft_of
from suite.bundle.files import sync_folder, writing
from suite.bundle.imported.store import is_run
from suite.bundle.store import Bundle
from suite.bundle.tags import forget_tags
from suite.launch.cluster.submission import FOLDER as SUBMITTED
from suite.spec.base import UsageError


class Removable(NamedTuple):
    """A bundle that nothing speaks against removing, with what it holds."""

    bundle: Bundle
    files: int
    bytes: int


def removable(path: Path) -> Removable:
    """Raises UsageError for what is no bundle, a link, being run, or submitted to a cluster."""
    bundle = Bundle(Path(os.path.abspath(path)))
    if os.path.islink(bundle.path):
        raise UsageError(f"{path} is a symbolic link: name the bundle itself")
    if not is_run(bundle.path):
        raise UsageError(f"{path} is no bundle")
    if bundle.running():
        raise UsageError(f"{path} is being run: wait for its end, or stop its driver")
    _refuse_submitted(bundle)
    sizes = []
    for root, _, names in os.walk(bundle.path):
        for name in names:
            with suppress(OSError):  # somebody else may be removing it too
                sizes.append(os.lstat(os.path.join(root, name)).st_size)
    return Removable(Bundle(path), len(sizes), sum(sizes))


def remove(one: Removable) -> None:
    """All of it, and its tags: at once for whoever looks at the folder. Raises UsageError where it is being run or
    submitted by now, was moved, or cannot be removed."""
    path = Path(os.path.abspath(one.bundle.path))
    bundle, away = Bundle(path), draft_of(path, ".removed")
    clear_drafts(path.parent, ())
    with at_work(path):
        with bundle.hold():
            _refuse_submitted(bundle)
            with writing(path):
                path.rename(away)
                sync_folder(path.parent)
        try:
            shutil.rmtree(away)
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise UsageError(f"{path} is gone from the results, but {away} cannot be removed whole: {why}") from error
    forget_tags(path)


def _refuse_submitted(bundle: Bundle) -> None:
    if os.path.lexists(bundle.path.parent / SUBMITTED / f"{bundle.id}.json"):
        raise UsageError(f"{bundle.id} was submitted to a cluster: end it (suite cancel), then clean up (suite clean)")
