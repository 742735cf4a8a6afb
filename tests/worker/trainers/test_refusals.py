"""What a trainer cannot do is refused by its rank too, where a manifest was changed behind the driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from suite.spec.layout import LayoutRequest
from suite.worker.trainers.openrlhf import options as openrlhf
from suite.worker.trainers.trl import config as trl
from suite.worker.trainers.trl_ppo import config as trl_ppo
from suite.worker.trainers.trlx import config as trlx
from suite.worker.trainers.trlx.nemo import config as nemo
from suite.worker.trainers.verl import settings as verl
from tests.worker.trainers.runs import WORK, as_read, tiny_shape, trainer_manifest

GROUPS = {"algorithm": "grpo", "group": 4}
HYDRA = {"reference": "hydra", "trainable_layers": 1}
UNEVEN = {"lengths": {"prompt": [6], "response": [8]}}
#: its check, and a family and work that it can do
TRAINERS: dict[str, tuple[Callable[[dict[str, Any]], None], str, dict[str, Any]]] = {
    "trlx-deepspeed": (trlx.check, "gpt2", {}),
    "trlx-ddp": (trlx.check, "gpt2", {}),
    "trlx-nemo": (nemo.check, "gpt2", {}),
    "trl-grpo": (trl.check, "gpt2", GROUPS),
    "trl-ppo": (trl_ppo.check, "gpt2", {}),
    "openrlhf": (openrlhf.check, "llama", GROUPS),
    "verl": (verl.check, "llama", {**GROUPS, "ppo_epochs": 1}),
}


@pytest.mark.parametrize(
    ("trainer", "section", "change", "words"),
    [
        ("trlx-deepspeed", "layout", {"tensor": 2}, "data parallel only: tensor 2"),
        ("trlx-deepspeed", "layout", {"sequence_parallel": True}, "megatron"),
        ("trlx-deepspeed", "layout", {"recompute": "full"}, "no switch for recomputation"),
        ("trlx-deepspeed", "size", {"kv_heads": 1}, "no grouped queries"),
        ("trlx-deepspeed", "workload", {**HYDRA, "trainable_layers": 0}, "below the trainable layers"),
        ("trlx-deepspeed", "measure", {"precision": "fp16"}, "not trained on a CPU"),
        ("trlx-ddp", "layout", {"zero_stage": 1}, "ZeRO stage 1 belongs to trlx-deepspeed"),
        ("trlx-nemo", "layout", {"pipeline": 2}, "no pipeline parallelism: asked for 2"),
        ("trlx-nemo", "workload", {"reward": {"kind": "token-below", "threshold": 3}}, "token-below"),
        ("trlx-nemo", "workload", HYDRA, "hydra"),
        ("trlx-nemo", "workload", {"trainable_layers": 0}, "0 trainable layers of 2"),
        ("trl-grpo", "work", UNEVEN, "samples of uneven length"),
        ("trl-grpo", "size", {"architecture": "opt"}, "no opt models are built for TRL"),
        ("trl-ppo", "layout", {"engine": "fsdp2"}, "deepspeed or ddp, not fsdp2"),
        ("trl-ppo", "layout", {"recompute": "full"}, "recomputation"),
        ("trl-ppo", "workload", HYDRA, "full reference copy, not hydra"),
        ("trl-ppo", "workload", {"trainable_layers": 1}, "trains every layer"),
        ("trl-ppo", "workload", {"algorithm": {"name": "grpo", "options": {}}}, "does PPO, not grpo"),
        ("openrlhf", "layout", {"zero_stage": 1}, "stage 2 or 3"),
        ("openrlhf", "layout", {"generation": "hf"}, "vLLM alone"),
        ("verl", "work", UNEVEN, "forces one length"),
        ("verl", "workload", {"trainable_layers": 1}, "all parameters train"),
        ("verl", "size", {"architecture": "opt"}, "not opt"),
        ("verl", "layout", {"generation": "hf"}, "generates with vLLM"),
        ("verl", "workload", {"optimizer_steps": 8}, "whole groups"),
    ],
)
def test_what_a_trainer_cannot_do_is_refused_with_its_value(
    trainer: str, section: str, change: dict[str, Any], words: str
) -> None:
    check, architecture, work = TRAINERS[trainer]
    request = LayoutRequest(devices_per_node=2)
    manifest = as_read(trainer_manifest(trainer, tiny_shape(architecture), {**WORK, **work}, request))
    check(manifest)
    manifest[section].update(change)
    with pytest.raises(ValueError, match=words):
        check(manifest)
