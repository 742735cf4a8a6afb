"""What must be mended around a foreign trainer so that it runs, one place for all of it.

A shim changes a package that is not the trainer's own. Each says why it is there and applies itself only where it is
needed; the record's notes list those that were active.
"""

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Tuple

from suite.worker.world import World


@dataclass(frozen=True)
class Shim:
    """``needed(manifest, world)`` is asked after the stack was imported; ``apply()`` changes it in this process."""

    name: str
    reason: str
    needed: Callable[[Dict[str, Any], World], bool]
    apply: Callable[[], None]


def apply_shims(shims: Iterable[Shim], manifest: Dict[str, Any], world: World) -> Tuple[str, ...]:
    """Apply those that are needed, in order; one note for each."""
    notes: List[str] = []
    for shim in shims:
        if shim.needed(manifest, world):
            shim.apply()
            notes.append("shim {}: {}".format(shim.name, shim.reason))
    return tuple(notes)
