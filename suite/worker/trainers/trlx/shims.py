"""What is replaced in the process so that trlx runs, in it and in the packages under it; its files are unchanged."""

import importlib
import shutil
from typing import Any

from suite.worker.deepspeed_json import micro_batches, uses_deepspeed
from suite.worker.trainers.iteration import before
from suite.worker.trainers.on_accelerate import DEEPSPEED_ON_CPU, Shim


def _answer_for_ddp() -> None:
    from torch.nn.parallel import DistributedDataParallel

    DistributedDataParallel.peft_type = property(lambda wrapper: wrapper.module.peft_type)


def _step_at_boundaries_only() -> None:
    from trlx.trainer.accelerate_base_trainer import AccelerateRLTrainer

    def tell(trainer: Any) -> None:
        steps = trainer.accelerator.gradient_accumulation_steps
        trainer.accelerator.gradient_state._set_sync_gradients((trainer.mb_count + 1) % steps == 0)

    before(AccelerateRLTrainer, "_accumulate", tell)


def _no_git(module: str) -> Shim:
    """For ``get_git_tag`` as ``module`` imported it: answers as trlx does itself where git fails."""

    def ask_no_git() -> None:
        importlib.import_module(module).get_git_tag = lambda: ("unknown", "unknown")

    reason = "trlx's get_git_tag asks git for the name of the current branch, and there is no git: replaced"
    return Shim("no-git", reason, lambda manifest, world: shutil.which("git") is None, ask_no_git)


TRLX_ACCELERATE = (
    Shim(
        "ddp-peft-type",
        "trlx asks the model for peft_type: torch's DistributedDataParallel gets a property that passes it on",
        lambda manifest, world: not uses_deepspeed(manifest),
        _answer_for_ddp,
    ),
    *DEEPSPEED_ON_CPU,
    Shim(
        "accumulation-boundary",
        "trlx's _accumulate is wrapped: Accelerate tells DeepSpeed's engine when to step, which trlx never sets",
        lambda manifest, world: uses_deepspeed(manifest) and micro_batches(manifest) > 1,
        _step_at_boundaries_only,
    ),
    _no_git("trlx.trainer.accelerate_base_trainer"),
)

TRLX_NEMO = (_no_git("trlx.trainer.nemo_ppo_trainer"),)
