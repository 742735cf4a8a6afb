"""The backends by name: those of the suite, and those that other packages register.

A package adds one with an entry point of the group ``suite.backends`` that loads to a ``BackendDriver``.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.metadata import entry_points

from suite.backends.base import BackendDriver
from suite.backends.deepspeed import DeepSpeed
from suite.backends.megatron import Megatron
from suite.backends.trlx_deepspeed import TrlxDdp, TrlxDeepSpeed
from suite.backends.trlx_nemo import TrlxNemo
from suite.spec.base import UsageError
from suite.spec.names import nearest

ENTRY_POINT_GROUP = "suite.backends"
_OWN: tuple[BackendDriver, ...] = (DeepSpeed(), Megatron(), TrlxDeepSpeed(), TrlxDdp(), TrlxNemo())


@lru_cache(maxsize=1)
def backends() -> dict[str, BackendDriver]:
    """Every backend by name, in the order they are listed. Raises UsageError when a registered one does not load."""
    found: dict[str, BackendDriver] = {driver.name: driver for driver in _OWN}
    for point in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: point.name):
        try:
            driver = point.load()()
        except (ImportError, AttributeError, TypeError) as error:
            raise UsageError(f"backend {point.name!r} of {point.value} does not load: {error}") from error
        found[driver.name] = driver
    return found


def find_backend(name: str) -> BackendDriver:
    """The backend called ``name``; UsageError with the nearest names otherwise."""
    known = backends()
    if name not in known:
        raise UsageError(f"there is no backend {name!r}{nearest(name, known)}; `suite backends` lists them")
    return known[name]
