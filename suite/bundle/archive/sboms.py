"""Lists of what images hold: kept in the user's cache by the image's id, and taken along with runs of that image."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from suite.bundle.archive.index import SBOMS
from suite.bundle.cache.place import cache_folder
from suite.bundle.files import DamagedBundle, parse_object, replace_atomically
from suite.bundle.store import Bundle
from suite.spec.base import UsageError
from suite.spec.foreign import Unreadable, read_bytes

MOST_BYTES = 64 << 20
_FOLDER = "sboms"
_ID = re.compile("sha256:([0-9a-f]{64})")
_SHOWN_DIGITS = 12


def check_sbom(data: bytes, name: str) -> None:
    """Raises UsageError for what is no CycloneDX list."""
    try:
        body = parse_object(data.decode(), name)
    except (DamagedBundle, UnicodeDecodeError) as error:
        raise UsageError(f"{name} is no list of components: {error}") from error
    if body.get("bomFormat") != "CycloneDX":
        raise UsageError(f"{name} is no CycloneDX list, as suite images check --sbom writes it")


def keep_sbom(image_id: str, data: bytes) -> None:
    """In the cache, for archives to come; nowhere where there is no cache, or the id is none of an image's content."""
    path = _path(image_id)
    if path is not None:
        with suppress(OSError, UsageError, UnicodeDecodeError):
            path.parent.mkdir(mode=0o700, exist_ok=True)
            replace_atomically(path, data.decode())


def kept_sboms(bundles: Iterable[Bundle]) -> dict[str, bytes]:
    """Of the images that these runs were in, as far as the cache has them: by their paths in an archive."""
    found: dict[str, bytes] = {}
    for image_id in sorted({one for bundle in bundles if (one := _image_of(bundle)) is not None}):
        path = _path(image_id)
        if path is None:
            continue
        name = f"{SBOMS}/{path.name[:_SHOWN_DIGITS]}.cdx.json"
        with suppress(FileNotFoundError, Unreadable, UsageError):
            data = read_bytes(path, name, MOST_BYTES)
            check_sbom(data, name)
            found[name] = data
    return found


def _image_of(bundle: Bundle) -> str | None:
    """The id of the image by which a launcher started it, where it told one."""
    try:
        image = (bundle.environment() or {}).get("image")
    except DamagedBundle:
        return None
    image_id = image.get("id") if isinstance(image, Mapping) else None
    return image_id if isinstance(image_id, str) else None


def _path(image_id: str) -> Path | None:
    match, folder = _ID.fullmatch(image_id), cache_folder()
    return None if match is None or folder is None else folder / _FOLDER / f"{match.group(1)}.cdx.json"
