"""Trainers on Accelerate: what ``accelerate launch`` would set for a rank, and what they really run on, held against
what was asked for: ranks, device, engine and its sharding.

Accelerate changes some of it without a word: on a CPU it makes DDP of FSDP2 and of DeepSpeed.
"""

import json
import os
from typing import Any, Dict, Optional

import torch.distributed as dist
from torch import nn

from suite.worker.deepspeed_json import micro_batches, training_json, uses_deepspeed
from suite.worker.rank import ConfigError
from suite.worker.world import World


def set_variables(manifest: Dict[str, Any], folder: str, parameters: Optional[int]) -> None:
    """As ``accelerate_variables``, with DeepSpeed's configuration in ``folder``. ``parameters`` train, if known yet."""
    path = os.path.join(folder, "deepspeed.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(training_json(manifest, parameters), file)
    os.environ.update(accelerate_variables(manifest, path if uses_deepspeed(manifest) else None))


def accelerate_variables(manifest: Dict[str, Any], deepspeed_file: Optional[str]) -> Dict[str, str]:
    """``deepspeed_file``: DeepSpeed's configuration; None on torch's own DistributedDataParallel."""
    precision = manifest["measure"]["precision"]
    variables = {
        "ACCELERATE_MIXED_PRECISION": "no" if precision == "fp32" else precision,
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": str(micro_batches(manifest)),
    }
    if deepspeed_file is not None:
        stage = manifest["layout"]["zero_stage"]
        variables["ACCELERATE_USE_DEEPSPEED"] = "true"
        variables["ACCELERATE_DEEPSPEED_CONFIG_FILE"] = deepspeed_file
        variables["ACCELERATE_DEEPSPEED_ZERO_STAGE"] = str(stage)
        variables["ACCELERATE_DEEPSPEED_ZERO3_INIT"] = "true" if stage == 3 else "false"
    elif manifest["measure"]["device"] == "cpu":
        # with a DeepSpeed configuration this would silently drop DeepSpeed
        variables["ACCELERATE_USE_CPU"] = "true"
    return variables


def check_ranks(accelerator: Any, world: World) -> None:
    """Raise ConfigError unless Accelerate runs the ranks, and the device, that were asked for."""
    found = accelerator.num_processes
    if found != world.world_size or dist.get_world_size() != world.world_size:
        raise ConfigError("Accelerate runs {} ranks of {}".format(found, world.world_size))
    if accelerator.device.type != world.device.type:
        raise ConfigError("Accelerate chose {}, not {}".format(accelerator.device, world.device))


def check_engine(model: Any, engine: str, zero_stage: int) -> None:
    """Raise ConfigError unless the model is in the engine, sharded as asked for.

    ``engine``: ``deepspeed`` at that ZeRO stage, ``ddp``, or ``fsdp2`` for a model of transformers.
    """
    if engine == "deepspeed":
        import deepspeed

        _check_wrapper(model, deepspeed.DeepSpeedEngine, "DeepSpeed")
        stage = model.zero_optimization_stage()
        if stage != zero_stage:
            raise ConfigError("ZeRO stage {} was asked for, but DeepSpeed runs stage {}".format(zero_stage, stage))
    elif engine == "ddp":
        _check_wrapper(model, nn.parallel.DistributedDataParallel, "DDP")
    else:
        assert engine == "fsdp2", engine
        from torch.distributed.fsdp import FSDPModule

        _check_wrapper(model, FSDPModule, "FSDP2")
        found, wanted = sum(isinstance(each, FSDPModule) for each in model.modules()), model.config.num_hidden_layers
        if found - 1 < wanted:  # the whole is one too
            raise ConfigError("FSDP2 gathers {} of {} blocks by themselves".format(found - 1, wanted))


def _check_wrapper(model: nn.Module, wrapper: type, name: str) -> None:
    if not isinstance(model, wrapper):
        raise ConfigError("{} was asked for, but the model is a {}".format(name, type(model).__name__))
