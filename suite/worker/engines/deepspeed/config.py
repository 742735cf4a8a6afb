"""The manifest in DeepSpeed's own words."""

from typing import Any, Dict

#: DeepSpeed's default number of elements in a reduction bucket; it is allocated whatever the model's size.
_DEFAULT_BUCKET_ELEMENTS = 500_000_000
#: An overflow would skip an optimizer step: start lower than DeepSpeed's 2^16.
_INITIAL_SCALE_POWER = 12


def training_config(manifest: Dict[str, Any], trainable_elements: int) -> Dict[str, Any]:
    """One ``engine.train`` is one optimizer step: the replica's batch, accumulated over its micro batches."""
    work, layout = manifest["work"], manifest["layout"]
    zero = _zero(manifest)
    zero["reduce_bucket_size"] = min(_DEFAULT_BUCKET_ELEMENTS, trainable_elements)
    if overlaps(manifest):
        zero["overlap_comm"] = True
    if layout["offload_optimizer"]:
        zero["offload_optimizer"] = _host_memory(manifest)
    config = dict(_common(manifest), zero_optimization=zero)
    config["gradient_accumulation_steps"] = work["replica_batch"] // work["micro_batch"]
    config["gradient_clipping"] = manifest["workload"]["optimizer"]["gradient_clip"]
    # torch's AdamW, the client optimizer of --kernels torch, is on no list of DeepSpeed's host optimizers.
    config["zero_allow_untested_optimizer"] = True
    config["zero_force_ds_cpu_optimizer"] = False
    return config


def overlaps(manifest: Dict[str, Any]) -> bool:
    """Whether gradients are reduced while backward still runs: where the megatron engine does, and DeepSpeed-Chat."""
    layout = manifest["layout"]
    return manifest["measure"]["device"] == "cuda" and layout["data"] > 1 and layout["zero_stage"] > 0


def inference_config(manifest: Dict[str, Any]) -> Dict[str, Any]:
    """A frozen model partitioned as the policy is."""
    return dict(_common(manifest), zero_optimization=_zero(manifest))


def _common(manifest: Dict[str, Any]) -> Dict[str, Any]:
    precision = manifest["measure"]["precision"]
    return {
        "train_micro_batch_size_per_gpu": manifest["work"]["micro_batch"],
        "bf16": {"enabled": precision == "bf16"},
        "fp16": {"enabled": precision == "fp16", "initial_scale_power": _INITIAL_SCALE_POWER},
        "steps_per_print": None,
        "wall_clock_breakdown": False,
    }


def _zero(manifest: Dict[str, Any]) -> Dict[str, Any]:
    zero: Dict[str, Any] = {"stage": manifest["layout"]["zero_stage"]}
    if manifest["layout"]["offload_parameters"]:
        zero["offload_param"] = _host_memory(manifest)
    return zero


def _host_memory(manifest: Dict[str, Any]) -> Dict[str, Any]:
    return {"device": "cpu", "pin_memory": manifest["measure"]["device"] == "cuda"}
