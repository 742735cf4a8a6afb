"""What is replaced in trlx and in the packages under it so that trlx runs: all of it is in this module.

trlx's files are unchanged (a digest is checked); two of its functions are replaced in the process where they must be,
as are functions of torch, Accelerate and DeepSpeed. Each shim says why it is there and applies itself only where it is
needed; the record's notes list those that were active.
"""

import importlib
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
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


def _ask_no_git(module: str) -> None:
    """Answer as trlx does itself where git fails, for ``get_git_tag`` as ``module`` imported it."""
    setattr(importlib.import_module(module), "get_git_tag", lambda: ("unknown", "unknown"))  # noqa: B010


def _no_git(module: str) -> Shim:
    reason = "trlx's get_git_tag asks git for the name of the current branch, and there is no git: replaced"
    return Shim("no-git", reason, _has_no_git, partial(_ask_no_git, module))


TRLX_ACCELERATE = (
    Shim(
        "ddp-peft-type",
        "trlx asks the model for peft_type: torch's DistributedDataParallel gets a property that passes it on",
        _is_ddp,
        _answer_for_ddp,
    ),
    Shim(
        "accelerate-gloo",
        "Accelerate knows no DeepSpeed on a CPU: PartialState._prepare_backend is replaced and answers gloo",
        _is_deepspeed_on_cpu,
        _let_accelerate_know_gloo,
    ),
    Shim(
        "no-shared-memory-operator",
        "DeepSpeed's build_shm_op is replaced: its shared-memory all-reduce is not compiled, gloo is used",
        _is_deepspeed_on_cpu,
        _compile_no_shared_memory,
    ),
    Shim(
        "accumulation-boundary",
        "trlx's _accumulate is wrapped: Accelerate tells DeepSpeed's engine when to step, which trlx never sets",
        _accumulates_under_deepspeed,
        _step_at_boundaries_only,
    ),
    _no_git("trlx.trainer.accelerate_base_trainer"),
)

TRLX_NEMO = (_no_git("trlx.trainer.nemo_ppo_trainer"),)
