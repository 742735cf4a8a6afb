"""An image that is a file: known by what it holds, since another may lie under the same name tomorrow."""

import hashlib
import os
from contextlib import closing
from pathlib import Path

from suite.bundle.cache.database import Database
from suite.bundle.cache.place import cache_folder
from suite.spec.base import UsageError
from suite.spec.foreign import open_plain


def is_file(image: str) -> bool:
    """Whether a file is meant: names in registries do not begin with a slash, and a folder is an unpacked image."""
    return image.startswith("/") and not os.path.isdir(image)


def content_name(image: str) -> str:
    """A file's digest, else the image's name or a folder's path. Raises UsageError for a file that cannot be read."""
    return file_digest(Path(image)) if is_file(image) else image


def file_digest(path: Path) -> str:
    """``sha256:...`` of a file, known by size, time and inode later. Raises UsageError where it is not readable."""
    try:
        opened = open_plain(path, f"--image {path}", None, by_user=True)
    except FileNotFoundError as error:
        raise UsageError(
            f"--image {path}: no such file or directory; a run is identified by what its image holds, so the file must "
            "be readable here under the path that the nodes see"
        ) from error
    with opened as file, closing(Database(cache_folder())) as known:
        status = os.fstat(file.fileno())
        state = f"{status.st_dev}.{status.st_ino} {status.st_size} {status.st_mtime_ns}"
        name = f"image file {os.path.realpath(path)} {state}".encode(errors="surrogateescape")
        found = known.get(name)
        if found is None:
            digest = hashlib.file_digest(file, "sha256")  # type: ignore[arg-type] # the type of open files lacks readinto
            found = f"sha256:{digest.hexdigest()}".encode()
            known.put(name, found)
    return found.decode()
