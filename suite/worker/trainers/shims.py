"""Replacements in packages under a trainer: each with its reason, only where it is needed, told in the notes."""

import importlib
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Tuple

from suite.worker.deepspeed_json import uses_deepspeed
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


def is_deepspeed_on_cpu(manifest: Dict[str, Any], world: World) -> bool:
    return world.device.type == "cpu" and uses_deepspeed(manifest)


def _let_accelerate_know_gloo() -> None:
    from accelerate.state import DistributedType, PartialState

    PartialState._prepare_backend = lambda *arguments, **options: ("gloo", DistributedType.MULTI_CPU)


def _compile_no_shared_memory() -> None:
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None


#: what DeepSpeed on a CPU would compile for minutes
NO_SHARED_MEMORY_OPERATOR = Shim(
    "no-shared-memory-operator",
    "DeepSpeed's build_shm_op is replaced: its shared-memory all-reduce is not compiled, gloo is used",
    is_deepspeed_on_cpu,
    _compile_no_shared_memory,
)
#: what a trainer on Accelerate needs for DeepSpeed's engine on a CPU
DEEPSPEED_ON_CPU = (
    Shim(
        "accelerate-gloo",
        "Accelerate knows no DeepSpeed on a CPU: PartialState._prepare_backend is replaced and answers gloo",
        is_deepspeed_on_cpu,
        _let_accelerate_know_gloo,
    ),
    NO_SHARED_MEMORY_OPERATOR,
)
