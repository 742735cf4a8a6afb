"""The user's folder for what can be derived again, as long as nobody else can write there."""

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

#: Another folder, or ``off``.
VARIABLE = "SUITE_CACHE"
_OFF = "off"
_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> Path | None:
    """The folder, made where it is not there; null where it is off, cannot be made, or is not the user's alone.

    ``$SUITE_CACHE``, else ``suite`` in ``$XDG_CACHE_HOME`` or in ``~/.cache``.
    """
    folder = _named()
    if folder is None:
        return None
    with suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder if is_own(folder, stat.S_ISDIR) else None


def is_own(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """Whether it is of that kind and no link, belongs to this user, and nobody else may write to it."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return is_kind(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & _BY_OTHERS


def _named() -> Path | None:
    named = os.environ.get(VARIABLE)
    if named:
        return None if named == _OFF else Path(named).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if base.is_absolute():  # anything else is to be ignored, by the XDG Base Directory Specification
        return base / "suite"
    try:
        return Path.home() / ".cache" / "suite"
    except RuntimeError:  # a user without a home
        return None
