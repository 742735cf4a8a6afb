"""vLLM as TRL builds it in each rank's process, but for what a model without a folder of weights needs."""

from contextlib import nullcontext
from typing import Any, Dict
from unittest import mock

import torch

from suite.worker.world import World

_BLOCK_TOKENS = 128
_SPARE_BLOCKS = 2  # one is never given to a sample
_ELEMENT_BYTES = {"fp32": 4, "bf16": 2}
_DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
_SHARE_THAT_MUST_BE_FREE = 0.05


def build_with_drawn_weights(manifest: Dict[str, Any], world: World) -> Any:
    """What stands in the place of ``LLM`` in TRL's ``generation/vllm_generation.py``, line 346: the same with more
    arguments. The weights are whatever memory held until TRL hands over the policy's, before the first generation."""
    from vllm import LLM

    more: Dict[str, Any] = {"load_format": "dummy", "skip_tokenizer_init": True, "generation_config": "vllm"}
    more["dtype"] = _DTYPES[manifest["measure"]["precision"]]
    if world.device.type == "cpu":
        more.update(
            enforce_eager=True,
            kv_cache_memory_bytes=_cache_bytes(manifest),
            gpu_memory_utilization=_SHARE_THAT_MUST_BE_FREE,
        )

    def build(**arguments: Any) -> Any:
        # on a CPU it puts a function that does nothing in the place of torch's
        threads_kept = mock.patch("torch.set_num_threads", torch.set_num_threads)
        with threads_kept if world.device.type == "cpu" else nullcontext():
            return LLM(**{**arguments, **more})

    return build


def _cache_bytes(manifest: Dict[str, Any]) -> int:
    """Room for keys and values of all samples of a rank at once."""
    size, workload, work = manifest["size"], manifest["workload"], manifest["work"]
    width = size.get("head_width") or size["hidden"] // size["heads"]
    token = 2 * size["layers"] * size["kv_heads"] * width * _ELEMENT_BYTES[manifest["measure"]["precision"]]
    sample = -(-(workload["prompt_tokens"] + workload["new_tokens"]) // _BLOCK_TOKENS)
    return int((work["replica_rollouts"] * sample + _SPARE_BLOCKS) * _BLOCK_TOKENS * token)
