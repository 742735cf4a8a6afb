"""The manifest in DeepSpeed's own words, for the models of the engine."""

from typing import Any, Dict

from suite.worker.deepspeed_json import common_json, training_json, zero_json


def training_config(manifest: Dict[str, Any], trainable_elements: int) -> Dict[str, Any]:
    """One ``engine.train`` is one optimizer step."""
    config = training_json(manifest, trainable_elements)
    if overlaps(manifest):
        config["zero_optimization"]["overlap_comm"] = True
    return {**config, "steps_per_print": None}


def overlaps(manifest: Dict[str, Any]) -> bool:
    """Whether gradients are reduced while backward still runs: where the megatron engine does, and DeepSpeed-Chat."""
    layout = manifest["layout"]
    return manifest["measure"]["device"] == "cuda" and layout["data"] > 1 and layout["zero_stage"] > 0


def inference_config(manifest: Dict[str, Any]) -> Dict[str, Any]:
    """A frozen model partitioned as the policy is."""
    return {**common_json(manifest), "zero_optimization": zero_json(manifest), "steps_per_print": None}
