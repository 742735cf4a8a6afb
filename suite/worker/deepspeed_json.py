"""A manifest as DeepSpeed's configuration, for the engine and for trainers on Accelerate; standard library alone."""

from typing import Any, Dict, Iterator, Optional

#: DeepSpeed's default number of elements in a reduction bucket; it is allocated whatever the model's size.
_DEFAULT_BUCKET_ELEMENTS = 500_000_000
#: An overflow would skip an optimizer step: start lower than DeepSpeed's 2^16.
_INITIAL_SCALE_POWER = 12


def engine_of(manifest: Dict[str, Any]) -> str:
    """Of a trainer on Accelerate: deepspeed, ddp or fsdp2."""
    return "ddp" if manifest["backend"]["name"] == "trlx-ddp" else manifest["layout"].get("engine", "deepspeed")


def uses_deepspeed(manifest: Dict[str, Any]) -> bool:
    return engine_of(manifest) == "deepspeed"


def micro_batches(manifest: Dict[str, Any]) -> int:
    """Micro batches of one optimizer step on one rank."""
    return int(manifest["work"]["replica_batch"] // manifest["work"]["micro_batch"])


def training_json(manifest: Dict[str, Any], parameters: Optional[int] = None) -> Dict[str, Any]:
    """One optimizer step is the replica's batch in micro batches. ``parameters`` train, where that is known already."""
    zero = _zero_json(manifest)
    if parameters is not None:
        zero["reduce_bucket_size"] = bucket_elements(manifest, parameters)
    if manifest["layout"]["offload_optimizer"]:
        zero["offload_optimizer"] = _host_memory(manifest)
    return {
        **_common_json(manifest),
        "gradient_accumulation_steps": micro_batches(manifest),
        "gradient_clipping": manifest["workload"]["optimizer"]["gradient_clip"],
        "zero_optimization": zero,
        # torch's AdamW is not on DeepSpeed's lists of tested and of host optimizers; its own would be compiled first.
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
    }


def training_config(manifest: Dict[str, Any], trainable_elements: int) -> Dict[str, Any]:
    """As ``training_json``, for the engine: one ``engine.train`` is one optimizer step."""
    config = training_json(manifest, trainable_elements)
    if overlaps(manifest):
        config["zero_optimization"]["overlap_comm"] = True
    return {**config, "steps_per_print": None}


def overlaps(manifest: Dict[str, Any]) -> bool:
    """Whether gradients are reduced while backward still runs: where the megatron engine does, and DeepSpeed-Chat."""
    layout = manifest["layout"]
    return manifest["measure"]["device"] == "cuda" and layout["data"] > 1 and layout["zero_stage"] > 0


def inference_config(manifest: Dict[str, Any]) -> Dict[str, Any]:
    """Of the engine's frozen model, partitioned as the policy is."""
    return {**_common_json(manifest), "zero_optimization": _zero_json(manifest), "steps_per_print": None}


def _common_json(manifest: Dict[str, Any]) -> Dict[str, Any]:
    """Of a model that trains and of one that does not."""
    precision = manifest["measure"]["precision"]
    common = {
        "train_micro_batch_size_per_gpu": manifest["work"]["micro_batch"],
        "bf16": {"enabled": precision == "bf16"},
        "wall_clock_breakdown": False,
    }
    if precision == "fp16":
        common["fp16"] = {"enabled": True, "initial_scale_power": _INITIAL_SCALE_POWER}
    return common


def _zero_json(manifest: Dict[str, Any]) -> Dict[str, Any]:
    zero: Dict[str, Any] = {"stage": manifest["layout"]["zero_stage"]}
    if manifest["layout"]["offload_parameters"]:
        zero["offload_param"] = _host_memory(manifest)
    return zero


def bucket_elements(manifest: Dict[str, Any], trainable_parameters: int) -> int:
    """Elements of ZeRO's reduction bucket: those asked for or DeepSpeed's default, or fewer where fewer train."""
    return min(manifest["layout"].get("bucket_elements", _DEFAULT_BUCKET_ELEMENTS), trainable_parameters)


def bucket_notes(manifest: Dict[str, Any]) -> Iterator[str]:
    if uses_deepspeed(manifest) and manifest["layout"]["zero_stage"]:
        most = manifest["layout"].get("bucket_elements", "DeepSpeed's default: 5e8")
        yield "ZeRO reduction bucket at most as large as the trainable parameters ({} elements)".format(most)


def _host_memory(manifest: Dict[str, Any]) -> Dict[str, Any]:
    return {"device": "cpu", "pin_memory": manifest["measure"]["device"] == "cuda"}
