"""One driver at a time decides which runs of a results folder a cluster gets, and hands them over."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from suite.bundle.files import writing
from suite.launch.cluster.submission import FOLDER

_LOCK = ".lock"


@contextmanager
def turn(root: Path) -> Iterator[None]:
    """Wait until no other driver submits runs of this folder, and keep others out while the block runs.

    Raises UsageError where the folder cannot be written. A folder that holds nothing afterwards is taken away again.
    """
    path = root / FOLDER / _LOCK
    descriptor = _locked(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()  # whoever waits for it finds another file in its place, or none
        os.close(descriptor)
        with suppress(OSError):
            path.parent.rmdir()
            root.rmdir()


def _locked(path: Path) -> int:
    while True:
        with writing(path):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            except (FileNotFoundError, FileExistsError):
                if path.parent.is_symlink() or (path.parent.exists() and not path.parent.is_dir()):
                    raise
                continue  # another driver has just taken its empty folder away
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if os.path.samestat(os.fstat(descriptor), path.lstat()):
                    return descriptor
            except FileNotFoundError:
                pass
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
