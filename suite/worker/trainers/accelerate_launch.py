"""What ``accelerate launch`` would set for each rank, and DeepSpeed's configuration, for trainers on Accelerate."""

from typing import Any, Dict, Optional

#: DeepSpeed's default number of elements in a reduction bucket; it is allocated whatever the model's size.
_DEFAULT_BUCKET_ELEMENTS = 500_000_000
#: An overflow would skip an optimizer step: start lower than DeepSpeed's 2^16.
_INITIAL_SCALE_POWER = 12


def micro_batches(manifest: Dict[str, Any]) -> int:
    """Micro batches of one optimizer step on one rank."""
    return int(manifest["work"]["replica_batch"] // manifest["work"]["micro_batch"])


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


def deepspeed_config(manifest: Dict[str, Any], parameters: Optional[int] = None) -> Dict[str, Any]:
    """One optimizer step is the replica's batch in micro batches. ``parameters`` train, where that is known already."""
    layout, precision = manifest["layout"], manifest["measure"]["precision"]
    zero: Dict[str, Any] = {"stage": layout["zero_stage"]}
    if parameters is not None:
        zero["reduce_bucket_size"] = bucket_elements(parameters)
    host = {"device": "cpu", "pin_memory": manifest["measure"]["device"] == "cuda"}
    for states, asked in (("optimizer", "offload_optimizer"), ("param", "offload_parameters")):
        if layout[asked]:
            zero["offload_" + states] = host
    config = {
        "train_micro_batch_size_per_gpu": manifest["work"]["micro_batch"],
        "gradient_accumulation_steps": micro_batches(manifest),
        "gradient_clipping": manifest["workload"]["optimizer"]["gradient_clip"],
        "zero_optimization": zero,
        "bf16": {"enabled": precision == "bf16"},
        # torch's AdamW is not on DeepSpeed's lists of tested and of host optimizers; its own would be compiled first.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "wall_clock_breakdown": False,
    }
    if precision == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": _INITIAL_SCALE_POWER}
    return config


def bucket_elements(trainable_parameters: int) -> int:
    """Elements of ZeRO's reduction bucket: DeepSpeed's default, or fewer where fewer parameters train."""
    return min(_DEFAULT_BUCKET_ELEMENTS, trainable_parameters)
