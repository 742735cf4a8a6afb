"""Which engine a TRL trainer really trains on, held against the one that was asked for."""

from typing import Any, Dict

import torch.distributed as dist
from torch import nn

from suite.worker.rank import ConfigError
from suite.worker.trainers.trl.config import engine_of, uses_vllm
from suite.worker.world import World


def check_accelerator(trainer: Any, manifest: Dict[str, Any], world: World) -> None:
    """Raise ConfigError unless Accelerate runs the ranks and the device that were asked for."""
    found = trainer.accelerator.num_processes
    if found != world.world_size or dist.get_world_size() != world.world_size:
        raise ConfigError("Accelerate runs {} ranks of {}".format(found, world.world_size))
    if trainer.accelerator.device.type != world.device.type:
        raise ConfigError("Accelerate chose {}, not {}".format(trainer.accelerator.device, world.device))
    if trainer.use_vllm != uses_vllm(manifest):
        raise ConfigError("generation {} was asked for, not what TRL runs".format(manifest["layout"]["generation"]))


def check_engine(trainer: Any, manifest: Dict[str, Any]) -> None:
    """Raise ConfigError unless the model that is about to train is in the engine, sharded as asked for."""
    model, engine = trainer.model_wrapped, engine_of(manifest)
    if engine == "deepspeed":
        _check_deepspeed(model, manifest["layout"]["zero_stage"])
    elif engine == "ddp":
        if not isinstance(model, nn.parallel.DistributedDataParallel):
            raise ConfigError("DDP was asked for, but the model is a {}".format(type(model).__name__))
    else:
        _check_fsdp2(model)


def _check_deepspeed(model: Any, asked: int) -> None:
    import deepspeed

    if not isinstance(model, deepspeed.DeepSpeedEngine):
        raise ConfigError("DeepSpeed was asked for, but the model is a {}".format(type(model).__name__))
    stage = model.zero_optimization_stage()
    if stage != asked:
        raise ConfigError("ZeRO stage {} was asked for, but DeepSpeed runs stage {}".format(asked, stage))


def _check_fsdp2(model: Any) -> None:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor

    if not isinstance(model, FSDPModule):
        raise ConfigError("FSDP2 was asked for, but the model is a {}".format(type(model).__name__))
    whole = [name for name, parameter in model.named_parameters() if not isinstance(parameter, DTensor)]
    if whole:
        raise ConfigError("FSDP2 was asked for, but {} is sharded over no ranks".format(whole[0]))
    blocks = sum(isinstance(module, FSDPModule) for module in model.modules()) - 1
    if blocks < model.config.num_hidden_layers:
        raise ConfigError("FSDP2 gathers {} of {} blocks by themselves".format(blocks, model.config.num_hidden_layers))
