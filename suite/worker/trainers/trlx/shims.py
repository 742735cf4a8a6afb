"""What is replaced in the process so that trlx runs, in it and in the packages under it; its files are unchanged.

Each function replaces what the run needs, and gives a note for each.
"""

import importlib
import shutil
from typing import Any, Dict, Iterator

from suite.worker.deepspeed_json import micro_batches, uses_deepspeed
from suite.worker.trainers.iteration import before
from suite.worker.trainers.on_accelerate import shims_of_deepspeed_on_cpu


def shims_on_accelerate(manifest: Dict[str, Any]) -> Iterator[str]:
    if not uses_deepspeed(manifest):
        from torch.nn.parallel import DistributedDataParallel

        DistributedDataParallel.peft_type = property(lambda wrapper: wrapper.module.peft_type)
        yield (
            "shim ddp-peft-type: trlx asks the model for peft_type: torch's DistributedDataParallel gets a property "
            "that passes it on"
        )
    yield from shims_of_deepspeed_on_cpu(manifest)
    if uses_deepspeed(manifest) and micro_batches(manifest) > 1:
        from trlx.trainer.accelerate_base_trainer import AccelerateRLTrainer

        before(AccelerateRLTrainer, "_accumulate", _tell_boundary)
        yield (
            "shim accumulation-boundary: trlx's _accumulate is wrapped: Accelerate tells DeepSpeed's engine when to "
            "step, which trlx never sets"
        )
    yield from shim_without_git("trlx.trainer.accelerate_base_trainer")


def _tell_boundary(trainer: Any) -> None:
    steps = trainer.accelerator.gradient_accumulation_steps
    trainer.accelerator.gradient_state._set_sync_gradients((trainer.mb_count + 1) % steps == 0)


def shim_without_git(module: str) -> Iterator[str]:
    """For ``get_git_tag`` as ``module`` imported it: answers as trlx does itself where git fails."""
    if shutil.which("git") is None:
        importlib.import_module(module).get_git_tag = lambda: ("unknown", "unknown")
        yield (
            "shim no-git: trlx's get_git_tag asks git for the name of the current branch, and there is no git: replaced"
        )
