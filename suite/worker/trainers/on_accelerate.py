"""Trainers on Accelerate: what ``accelerate launch`` would set for a rank, and whether they run on what was asked for.

Accelerate changes some of it without a word: on a CPU it makes DDP of FSDP2 and of DeepSpeed.
"""

import importlib
import json
import os
from typing import Any, Dict, Iterator, Optional

from suite.worker.deepspeed_json import engine_of, micro_batches, training_json, uses_deepspeed
from suite.worker.rank import ConfigError
from suite.worker.world import World

#: by engine, the class that its model is of
_WRAPPERS = {
    "ddp": ("torch.nn.parallel", "DistributedDataParallel"),
    "deepspeed": ("deepspeed", "DeepSpeedEngine"),
    "fsdp2": ("torch.distributed.fsdp", "FSDPModule"),
}


def set_variables(manifest: Dict[str, Any], folder: str, parameters: Optional[int]) -> None:
    """As ``accelerate_variables``, with DeepSpeed's configuration in ``folder``. ``parameters`` train, if known yet."""
    path = os.path.join(folder, "deepspeed.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(training_json(manifest, parameters), file)
    os.environ.update(accelerate_variables(manifest, path))


def accelerate_variables(manifest: Dict[str, Any], deepspeed_file: str) -> Dict[str, str]:
    """``deepspeed_file``: DeepSpeed's configuration, where that is the engine."""
    precision = manifest["measure"]["precision"]
    variables = {
        "ACCELERATE_MIXED_PRECISION": "no" if precision == "fp32" else precision,
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": str(micro_batches(manifest)),
    }
    if uses_deepspeed(manifest):
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
    if accelerator.num_processes != world.world_size:
        raise ConfigError("Accelerate runs {} ranks of {}".format(accelerator.num_processes, world.world_size))
    if accelerator.device.type != world.device.type:
        raise ConfigError("Accelerate chose {}, not {}".format(accelerator.device, world.device))


def check_engine(model: Any, manifest: Dict[str, Any]) -> None:
    """Raise ConfigError unless the model is in the engine, sharded as asked for; FSDP2 wants one of transformers."""
    engine, wanted = engine_of(manifest), manifest["layout"]["zero_stage"]
    module, name = _WRAPPERS[engine]
    wrapper = getattr(importlib.import_module(module), name)
    if not isinstance(model, wrapper):
        raise ConfigError("{} was asked for, but the model is a {}".format(engine, type(model).__name__))
    if engine == "deepspeed" and model.zero_optimization_stage() != wanted:
        stage = model.zero_optimization_stage()
        raise ConfigError("ZeRO stage {} was asked for, but DeepSpeed runs stage {}".format(wanted, stage))
    if engine == "fsdp2":
        blocks = sum(isinstance(each, wrapper) for each in model.modules()) - 1  # the whole is one too
        if blocks < model.config.num_hidden_layers:
            raise ConfigError(
                "FSDP2 gathers {} of {} blocks by themselves".format(blocks, model.config.num_hidden_layers)
            )


def is_deepspeed_on_cpu(manifest: Dict[str, Any]) -> bool:
    return manifest["measure"]["device"] == "cpu" and uses_deepspeed(manifest)


def shims_of_deepspeed_on_cpu(manifest: Dict[str, Any]) -> Iterator[str]:
    """Replace what keeps DeepSpeed's engine under Accelerate from a CPU, where it runs on one; a note for each."""
    if is_deepspeed_on_cpu(manifest):
        from accelerate.state import DistributedType, PartialState

        PartialState._prepare_backend = lambda *arguments, **options: ("gloo", DistributedType.MULTI_CPU)
        yield (
            "shim accelerate-gloo: Accelerate knows no DeepSpeed on a CPU: PartialState._prepare_backend is replaced "
            "and answers gloo"
        )
        yield without_shared_memory_operator()


def without_shared_memory_operator() -> str:
    """DeepSpeed would compile it for minutes."""
    importlib.import_module("deepspeed.comm.torch").build_shm_op = lambda: None
    return (
        "shim no-shared-memory-operator: DeepSpeed's build_shm_op is replaced: its shared-memory all-reduce is not "
        "compiled, gloo is used"
    )
