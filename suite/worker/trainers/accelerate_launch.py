"""What ``accelerate launch`` would set for each rank, for trainers that read their engine from there."""

from typing import Any, Dict


def accelerate_variables(
    manifest: Dict[str, Any], micro_batches: int, deepspeed: bool, deepspeed_file: str
) -> Dict[str, str]:
    """``micro_batches`` of an optimizer step on a rank; on ``deepspeed`` the file holds its configuration."""
    precision = manifest["measure"]["precision"]
    variables = {
        "ACCELERATE_MIXED_PRECISION": "no" if precision == "fp32" else precision,
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": str(micro_batches),
    }
    if deepspeed:
        stage = manifest["layout"]["zero_stage"]
        variables["ACCELERATE_USE_DEEPSPEED"] = "true"
        variables["ACCELERATE_DEEPSPEED_CONFIG_FILE"] = deepspeed_file
        variables["ACCELERATE_DEEPSPEED_ZERO_STAGE"] = str(stage)
        variables["ACCELERATE_DEEPSPEED_ZERO3_INIT"] = "true" if stage == 3 else "false"
    elif manifest["measure"]["device"] == "cpu":
        # with a DeepSpeed configuration this would silently drop DeepSpeed
        variables["ACCELERATE_USE_CPU"] = "true"
    return variables
