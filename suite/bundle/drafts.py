"""Hidden drafts beside what they become, each locked while somebody works on it; those of killed processes go."""

import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from suite.bundle.files import locked

#: `.NAME.PID` of what is made, `.NAME.removed.PID` of what is removed.
_DRAFT = re.compile(r"\.(?P<name>.+?)(?P<removed>\.removed)?\.[0-9]+", re.DOTALL)
#: A draft is younger than this when its maker has not locked it yet.
_FRESH_SECONDS = 2.0


def draft_of(path: Path, removed: str = "") -> Path:
    """``removed``: ``.removed`` for what is no more."""
    return path.with_name(f".{path.name}{removed}.{os.getpid()}")


@contextmanager
def draft_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """A new folder that the block fills and renames; it is gone where the block fails. Raises OSError."""
    clear_drafts(path.parent, (path.name,))
    draft = draft_of(path)
    draft.mkdir(mode=mode)
    try:
        with at_work(draft):
            yield draft
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


@contextmanager
def at_work(draft: Path) -> Iterator[None]:
    """Keep ``clear_drafts`` of other processes from it until the end of the block, wherever it is moved meanwhile."""
    with ExitStack() as ending:
        with suppress(OSError):  # where nothing can be locked, no draft is removed either
            ending.callback(os.close, locked(draft, os.O_RDONLY | os.O_NONBLOCK, wait=True))
        yield


def clear_drafts(folder: Path, names: Collection[str]) -> None:
    """Remove from ``folder`` the drafts of ``names``, and what was being removed, that nobody works on any more."""
    with suppress(OSError):
        with os.scandir(folder) as found:
            entries = [entry.name for entry in found if entry.name.startswith(".")]
        for entry in entries:
            match = _DRAFT.fullmatch(entry)
            if match and (match["removed"] or match["name"] in names) and _is_abandoned(folder / entry):
                shutil.rmtree(folder / entry, ignore_errors=True)
                with suppress(OSError):  # of a file
                    os.unlink(folder / entry)


def _is_abandoned(draft: Path) -> bool:
    try:
        descriptor = locked(draft, os.O_RDONLY | os.O_NONBLOCK)  # no pipe is waited for
    except OSError:
        return False
    try:
        return time.time() - os.fstat(descriptor).st_mtime > _FRESH_SECONDS
    finally:
        os.close(descriptor)
