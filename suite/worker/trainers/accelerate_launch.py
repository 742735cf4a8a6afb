"""What ``accelerate launch`` would set for each rank, for trainers on Accelerate."""

from typing import Any, Dict, Optional

from suite.worker.deepspeed_json import micro_batches


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
