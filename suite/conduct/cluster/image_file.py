"""An image that is a file: known by what it holds, since another may lie under the same name tomorrow."""

import hashlib
import json
import os
import stat
from contextlib import suppress
from pathlib import Path

from suite.bundle.cache.place import cache_folder, is_own
from suite.bundle.files import replace_atomically
from suite.spec.base import UsageError
from suite.spec.foreign import open_plain, read_text

_KEPT = "image-digests.json"
_MOST_KEPT, _MOST_BYTES = 200, 1 << 20


def is_file(image: str) -> bool:
    """Whether a file is meant: names in registries do not begin with a slash, and a folder is an unpacked image."""
    return image.startswith("/") and not os.path.isdir(image)


def content_name(image: str) -> str:
    """What tells an image from every other: a file's digest, else its name, best with a digest in it.

    A folder (an unpacked image) is known by its path alone. Raises UsageError for a file that cannot be read.
    """
    return file_digest(Path(image)) if is_file(image) else image


def file_digest(path: Path) -> str:
    """``sha256:...`` of a file. It is read once; after that its size, time and inode tell that it is the same.

    Raises UsageError where it is not there, no plain file, or cannot be read.
    """
    try:
        opened = open_plain(path, f"--image {path}", None, by_user=True)
    except FileNotFoundError as error:
        raise UsageError(
            f"--image {path}: no such file or directory; a run is identified by what its image holds, so the file must "
            "be readable here under the path that the nodes see"
        ) from error
    with opened as file:
        status = os.fstat(file.fileno())
        key = f"{os.path.realpath(path)} {status.st_dev}.{status.st_ino} {status.st_size} {status.st_mtime_ns}"
        kept = _kept()
        if key in kept:
            return kept[key]
        digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type] # the type of open files lacks readinto
    name = f"sha256:{digest.hexdigest()}"
    _keep({**kept, key: name})
    return name


def _place() -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / _KEPT


def _kept() -> dict[str, str]:
    """What was read before; nothing where that cannot be used."""
    path = _place()
    if path is None or not is_own(path, stat.S_ISREG):
        return {}
    with suppress(OSError, ValueError, UsageError):
        found = json.loads(read_text(path, str(path), _MOST_BYTES))
        return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}
    return {}


def _keep(digests: dict[str, str]) -> None:
    path = _place()
    newest = dict(list(digests.items())[-_MOST_KEPT:])
    if path is not None:
        with suppress(UsageError):
            replace_atomically(path, json.dumps(newest, indent=1))
