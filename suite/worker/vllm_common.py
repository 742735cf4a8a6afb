"""What all ways of running vLLM here share: the size of its cache, and on a CPU layers that take new weights."""

import sys
from importlib import import_module
from typing import Any, Dict

#: Tokens of a block of its cache: 16 on CUDA, 128 on a CPU. The larger one is counted with.
BLOCK_TOKENS = 128
SPARE_BLOCKS = 2  # one is never given to a sample
SHARE_THAT_MUST_BE_FREE = 0.05


def cache_bytes(size: Dict[str, Any], precision: str, blocks: int, tensor: int = 1) -> int:
    """Keys and values in so many blocks, on one of ``tensor`` parallel ranks."""
    from suite.worker.precision import DTYPES  # torch, which processes that only patch vLLM do without

    width = size.get("head_width") or size["hidden"] // size["heads"]
    heads = -(-size["kv_heads"] // tensor)
    return int(blocks * BLOCK_TOKENS * 2 * size["layers"] * heads * width * DTYPES[precision].itemsize)


def even_blocks(samples: int, tokens: int) -> int:
    """Blocks for so many samples of so many tokens each, all at once."""
    return samples * -(-tokens // BLOCK_TOKENS) + SPARE_BLOCKS


def plain_linear(layer: Any, remove_weight: bool = False) -> None:
    """In the place of vLLM's ``dispatch_cpu_unquantized_gemm``: the layer keeps its weight and computes as torch."""
    layer.cpu_linear = import_module("torch.nn.functional").linear


def keep_linear_weights() -> None:
    """On a CPU vLLM packs each linear layer's weight for its own kernel and drops it: the next ones find no place.

    Modules that took the function over by name are told too.
    """
    import_module("vllm.model_executor.layers.linear")
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and "dispatch_cpu_unquantized_gemm" in vars(module):
            module.dispatch_cpu_unquantized_gemm = plain_linear  # type: ignore[attr-defined]
