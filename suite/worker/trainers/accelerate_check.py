"""What a trainer on Accelerate really runs on, held against what was asked for: ranks, device, engine and its sharding.

Accelerate changes some of it without a word: on a CPU it makes DDP of FSDP2 and of DeepSpeed.
"""

from typing import Any

import torch.distributed as dist
from torch import nn

from suite.worker.rank import ConfigError
from suite.worker.world import World


def check_ranks(accelerator: Any, world: World) -> None:
    """Raise ConfigError unless Accelerate runs the ranks, and the device, that were asked for."""
    found = accelerator.num_processes
    if found != world.world_size or dist.get_world_size() != world.world_size:
        raise ConfigError("Accelerate runs {} ranks of {}".format(found, world.world_size))
    if accelerator.device.type != world.device.type:
        raise ConfigError("Accelerate chose {}, not {}".format(accelerator.device, world.device))


def check_engine(model: nn.Module, engine: str, zero_stage: int) -> None:
    """Raise ConfigError unless the model is in the engine, sharded as asked for.

    ``engine``: ``deepspeed`` at that ZeRO stage, ``ddp``, or ``fsdp2`` for a model of transformers.
    """
    if engine == "deepspeed":
        _check_deepspeed(model, zero_stage)
    elif engine == "ddp":
        _check_wrapper(model, nn.parallel.DistributedDataParallel, "DDP")
    else:
        assert engine == "fsdp2", engine
        _check_fsdp2(model)


def _check_wrapper(model: nn.Module, wrapper: type, name: str) -> None:
    if not isinstance(model, wrapper):
        raise ConfigError("{} was asked for, but the model is a {}".format(name, type(model).__name__))


def _check_deepspeed(model: Any, asked: int) -> None:
    import deepspeed

    _check_wrapper(model, deepspeed.DeepSpeedEngine, "DeepSpeed")
    stage = model.zero_optimization_stage()
    if stage != asked:
        raise ConfigError("ZeRO stage {} was asked for, but DeepSpeed runs stage {}".format(asked, stage))


def _check_fsdp2(model: Any) -> None:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    _check_wrapper(model, FSDPModule, "FSDP2")
    whole = [name for name, parameter in model.named_parameters() if not isinstance(parameter, DTensor)]
    if whole:
        raise ConfigError("FSDP2 was asked for, but {} is sharded over no ranks".format(whole[0]))
    blocks = sum(isinstance(module, FSDPModule) for module in model.modules()) - 1
    if blocks < model.config.num_hidden_layers:
        raise ConfigError("FSDP2 gathers {} of {} blocks by themselves".format(blocks, model.config.num_hidden_layers))
