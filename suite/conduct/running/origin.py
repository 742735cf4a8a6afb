"""Whether a bundle's manifest was made by this user on this machine, as a bundle can prove and nobody else can forge.

A user has a key, a file of their own in the folder of ``suite.bundle.cache.place``. With each run ``environment.json``
gets a code of the manifest under that key; a manifest that was changed, or came from elsewhere, has none that fits.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from suite.bundle.cache.place import cache_folder, is_own
from suite.spec.manifest import Manifest

#: What ``environment.json`` calls it.
FIELD = "origin"
_FILE, _KEY_BYTES = "origin.key", 32


def origin_of(manifest: Manifest) -> dict[str, str]:
    """The fact for ``environment.json``; empty where no key can be kept, as without a home."""
    key = _key(make=True)
    return {} if key is None else {FIELD: _code(key, manifest)}


def is_from_here(manifest: Manifest, facts: Mapping[str, Any] | None) -> bool:
    """Whether this user recorded the manifest here; ``facts``: of the ``environment.json`` beside it."""
    told, key = (facts or {}).get(FIELD), _key(make=False)
    return (
        isinstance(told, str)
        and key is not None
        and hmac.compare_digest(told.encode(errors="replace"), _code(key, manifest).encode())
    )


def _code(key: bytes, manifest: Manifest) -> str:
    """Of the whole manifest: its hash, which covers all but ``run``, and ``run``."""
    text = f"{manifest.hash}\n{manifest.run.model_dump_json()}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    """The user's key; null where there is none, or its file is not the user's alone."""
    folder = cache_folder()
    if folder is None:
        return None
    path = folder / _FILE
    if make and not path.exists():
        with suppress(OSError):
            _make(path)
    if not is_own(path, stat.S_ISREG):
        return None
    try:
        with path.open("rb") as file:
            key = file.read(_KEY_BYTES + 1)
    except OSError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _make(path: Path) -> None:
    """Whole or not at all, and only once, however many drivers begin at the same time."""
    draft = path.with_name(f".{_FILE}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_KEY_BYTES))
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink(missing_ok=True)
