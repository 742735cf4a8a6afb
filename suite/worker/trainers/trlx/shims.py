"""What must be mended around a foreign trainer so that it runs, one place for all of it.

A shim changes a package that is not the trainer's own. Each says why it is there and applies itself only where it is
needed; the record's notes list those that were active.
"""

import importlib
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, Iterator, List, Tuple

from suite.worker.trainers.trlx.config import micro_batches, uses_deepspeed
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


def _is_cpu(manifest: Dict[str, Any], world: World) -> bool:
    return world.device.type == "cpu"


def _is_deepspeed_on_cpu(manifest: Dict[str, Any], world: World) -> bool:
    return _is_cpu(manifest, world) and uses_deepspeed(manifest)


def _is_ddp(manifest: Dict[str, Any], world: World) -> bool:
    return not uses_deepspeed(manifest)


def _accumulates_under_deepspeed(manifest: Dict[str, Any], world: World) -> bool:
    return uses_deepspeed(manifest) and micro_batches(manifest) > 1


def _has_no_git(manifest: Dict[str, Any], world: World) -> bool:
    return shutil.which("git") is None


def _answer_for_ddp() -> None:
    from torch.nn.parallel import DistributedDataParallel

    DistributedDataParallel.peft_type = property(lambda wrapper: wrapper.module.peft_type)


def _let_accelerate_know_gloo() -> None:
    from accelerate.state import DistributedType, PartialState

    PartialState._prepare_backend = lambda *arguments, **options: ("gloo", DistributedType.MULTI_CPU)


def _compile_no_shared_memory() -> None:
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None


def _step_at_boundaries_only() -> None:
    from trlx.trainer.accelerate_base_trainer import AccelerateRLTrainer

    accumulate = AccelerateRLTrainer._accumulate

    @contextmanager
    def accumulate_to_boundary(trainer: Any) -> Iterator[None]:
        steps = trainer.accelerator.gradient_accumulation_steps
        trainer.accelerator.gradient_state._set_sync_gradients((trainer.mb_count + 1) % steps == 0)
        with accumulate(trainer):
            yield

    AccelerateRLTrainer._accumulate = accumulate_to_boundary


def _ask_no_git() -> None:
    from trlx.trainer import accelerate_base_trainer

    accelerate_base_trainer.get_git_tag = lambda: ("unknown", "unknown")


TRLX_ACCELERATE = (
    Shim(
        "ddp-peft-type",
        "trlx asks the model for peft_type, which torch's DDP wrapper does not pass on",
        _is_ddp,
        _answer_for_ddp,
    ),
    Shim(
        "accelerate-gloo",
        "Accelerate knows no DeepSpeed on a CPU and is told of gloo",
        _is_deepspeed_on_cpu,
        _let_accelerate_know_gloo,
    ),
    Shim(
        "no-shared-memory-operator",
        "DeepSpeed's shared-memory all-reduce is not compiled; gloo is used",
        _is_deepspeed_on_cpu,
        _compile_no_shared_memory,
    ),
    Shim(
        "accumulation-boundary",
        "Accelerate tells DeepSpeed's engine when to step, which trlx, written for an engine that counts, never sets",
        _accumulates_under_deepspeed,
        _step_at_boundaries_only,
    ),
    Shim("no-git", "trlx asks git for the name of the current branch, and there is no git", _has_no_git, _ask_no_git),
)
