"""Trainers on Accelerate: what ``accelerate launch`` would set for a rank, and what they really run on, held against
what was asked for: ranks, device, engine and its sharding.

Accelerate changes some of it without a word: on a CPU it makes DDP of FSDP2 and of DeepSpeed.
"""

import importlib
import json
import os
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

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
