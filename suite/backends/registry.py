"""The backends by name: those of the suite, and those that other packages register.

A package adds one with an entry point of the group ``suite.backends`` that loads to a ``BackendDriver``.
"""

from __future__ import annotations

import json
from functools import cache, lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from suite.backends.base import BackendDriver
from suite.spec.base import UsageError
from suite.spec.names import nearest

ENTRY_POINT_GROUP = "suite.backends"
#: Trainers whose logs are read and that are not started: their backends were never run.
_IMPORTED = ("skyrl", "areal")
_FILE = Path(__file__).parents[1] / "worker" / "backends.json"


@cache
def _declared() -> dict[str, str]:
    """``MODULE:CLASS`` of the suite's own by name, as ``suite/worker/backends.json`` has them for driver and worker."""
    tables = json.loads(_FILE.read_text(encoding="utf-8")).values()
    return {name: entry["driver"] for entries in tables for name, entry in entries.items()}


@cache
def _own(name: str) -> BackendDriver:
    module, _, attribute = _declared()[name].partition(":")
    driver: BackendDriver = getattr(import_module(module), attribute)()
    return driver


@cache
def _registered() -> list[EntryPoint]:
    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name)


def own_backends() -> dict[str, BackendDriver]:
    """Those of the suite."""
    return {name: _own(name) for name in _declared()}


@lru_cache(maxsize=1)
def backends() -> dict[str, BackendDriver]:
    """Every backend by name, in the order they are listed. Raises UsageError when a registered one does not load."""
    found = own_backends()
    for point in _registered():
        try:
            driver = point.load()()
        except (ImportError, AttributeError, TypeError) as error:
            raise UsageError(f"backend {point.name!r} of {point.value} does not load: {error}") from error
        found[driver.name] = driver
    return found


def find_backend(name: str) -> BackendDriver:
    """The backend called ``name``; UsageError with the nearest names otherwise. Only its own module is imported, unless
    packages have registered others, which may take its name."""
    if name in _declared() and not _registered():
        return _own(name)
    known = backends()
    if name in _IMPORTED and name not in known:
        raise UsageError(f"{name} is not started by the suite: `suite import LOG --from {name}` takes over its own log")
    if name not in known:
        raise UsageError(f"there is no backend {name!r}{nearest(name, known)}; `suite backends` lists them")
    return known[name]


def seat_of(name: str) -> tuple[BackendDriver, str | None]:
    """Backend and environment of ``deepspeed`` or ``deepspeed@before`` (``Backend.label``). Raises UsageError."""
    backend, _, environment = name.partition("@")
    return find_backend(backend), environment or None
