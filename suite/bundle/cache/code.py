"""Which code derives records: what it derived is looked up by the same code alone."""

import hashlib
import platform
from functools import cache
from importlib.metadata import version
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
    key = hashlib.sha256(f"{platform.python_version()} {[version(name) for name in packages]}".encode())
    data = ((_PACKAGE / "worker", "*.json"), (data_root(), "*.yaml"))
    for folder, pattern in (*((_PACKAGE / room, "*.py") for room in rooms), *data):
        key.update(_digest(folder, pattern))
    return key.digest()


@cache
def _digest(folder: Path, pattern: str) -> bytes:
    """Over files by their names in it, so that the place where the suite is installed does not matter."""
    found = hashlib.sha256(folder.name.encode())
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob(pattern)):
        data = path.read_bytes()
        found.update(f"{name} {len(data)}\n".encode())
        found.update(data)
    return found.digest()
