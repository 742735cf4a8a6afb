"""Replacements in packages under a trainer: each with its reason, only where it is needed, told in the notes."""

import importlib
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Tuple

from suite.worker.world import World

Needed = Callable[[Dict[str, Any], World], bool]


@dataclass(frozen=True)
class Shim:
    """``needed(manifest, world)`` is asked after the stack was imported; ``apply()`` changes it in this process."""

    name: str
    reason: str
    needed: Needed
    apply: Callable[[], None]


def apply_shims(shims: Iterable[Shim], manifest: Dict[str, Any], world: World) -> Tuple[str, ...]:
    """Apply those that are needed, in order; one note for each."""
    notes: List[str] = []
    for shim in shims:
        if shim.needed(manifest, world):
            shim.apply()
            notes.append("shim {}: {}".format(shim.name, shim.reason))
    return tuple(notes)


def deepspeed_on_cpu(needed: Needed) -> Tuple[Shim, ...]:
    """What a trainer on Accelerate needs for DeepSpeed's engine on a CPU."""
    return (
        Shim(
            "accelerate-gloo",
            "Accelerate knows no DeepSpeed on a CPU: PartialState._prepare_backend is replaced and answers gloo",
            needed,
            _let_accelerate_know_gloo,
        ),
        Shim(
            "no-shared-memory-operator",
            "DeepSpeed's build_shm_op is replaced: its shared-memory all-reduce is not compiled, gloo is used",
            needed,
            _compile_no_shared_memory,
        ),
    )


def _let_accelerate_know_gloo() -> None:
    from accelerate.state import DistributedType, PartialState

    PartialState._prepare_backend = lambda *arguments, **options: ("gloo", DistributedType.MULTI_CPU)


def _compile_no_shared_memory() -> None:
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
