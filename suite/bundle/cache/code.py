"""Which code derives records: what it derived is looked up by the same code alone."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from suite.spec.catalogue import data_root

_PACKAGE = Path(__file__).resolve().parents[2]
#: The rooms whose code a record can depend on: this one, and those that it imports from (a test holds it).
ROOMS = ("backends", "bundle", "launch", "spec", "stats", "theory")
#: Their figures' last digits may be another version's.
_PACKAGES = ("msgspec", "numpy", "pydantic", "scipy")


@cache
def code_key(rooms: tuple[str, ...] = ROOMS, packages: tuple[str, ...] = _PACKAGES) -> bytes:
    """SHA-256 over all sources and data that a record is derived with, and the versions of Python and packages.

    ``rooms`` and ``packages``: those of something else that is made of records.
    """
    key = hashlib.sha256(f"{platform.python_version()} {[_version(name) for name in packages]}".encode())
    for name, path in sorted(_files(rooms)):
        data = path.read_bytes()
        key.update(f"{name} {len(data)}\n".encode())
        key.update(data)
    return key.digest()


def _files(rooms: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
    """By the name within the suite, so that the place where it is installed does not matter."""
    for room in rooms:
        for path in (_PACKAGE / room).rglob("*.py"):
            yield path.relative_to(_PACKAGE).as_posix(), path
    for path in (_PACKAGE / "worker").glob("*.json"):
        yield path.relative_to(_PACKAGE).as_posix(), path
    for path in data_root().glob("*.yaml"):
        yield f"manifests/{path.name}", path


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
