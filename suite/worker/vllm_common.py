"""What all ways of running vLLM here share: its environment, the size of its cache, its weights, its CPU layers."""

import sys
from importlib import import_module
from typing import Any, ContextManager, Dict, Iterable

from suite.worker.hugging_face import head_width
from suite.worker.manifest import installed_version
from suite.worker.rank import ConfigError

#: no reports home, no progress in the logs
QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}
#: the engine needs no worker process of its own and leaves threads alone
ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
#: whole GiB of the cache on a CPU, and stronger than any other size
CACHE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
#: Tokens of a block of its cache: 16 on CUDA, 128 on a CPU. The larger one is counted with.
_BLOCK_TOKENS = 128
_SPARE_BLOCKS = 2  # one is never given to a sample
SHARE_THAT_MUST_BE_FREE = 0.05


def release(device_type: str) -> str:
    """Name and version of the package that is there for such a device."""
    package = "vllm-cpu" if device_type == "cpu" else "vllm"
    return "{} {}".format(package, installed_version(package))


def memory_share(manifest: Dict[str, Any], name: str) -> Dict[str, float]:
    """A trainer's setting of that name: vLLM's share of a GPU's memory, where one is asked for."""
    percent = manifest["layout"].get("engine_memory")
    return {name: percent / 100} if percent else {}


def cache_bytes(size: Dict[str, Any], precision: str, blocks: int, tensor: int = 1) -> int:
    """Keys and values in so many blocks, on one of ``tensor`` parallel ranks."""
    from suite.worker.models import DTYPES  # torch, which processes that only patch vLLM do without

    heads = -(-size["kv_heads"] // tensor)
    return int(blocks * _BLOCK_TOKENS * 2 * size["layers"] * heads * head_width(size) * DTYPES[precision].itemsize)


def blocks_for(lengths: Iterable[int]) -> int:
    """Blocks for samples of so many tokens each, all at once."""
    return _SPARE_BLOCKS + sum(-(-tokens // _BLOCK_TOKENS) for tokens in lengths)


def check_loaded(model: Any, loaded: Iterable[str], giver: str) -> None:
    """Raise ConfigError where a weight of vLLM's model got none of the policy's."""
    missing = sorted({name for name, _ in model.named_parameters()} - set(loaded))
    if missing:
        raise ConfigError("{} gave vLLM no weights for {}".format(giver, ", ".join(missing[:3])))


def threads_kept() -> ContextManager[Any]:
    """On a CPU vLLM, as it is built, puts a function that does nothing in the place of torch's ``set_num_threads``."""
    from unittest import mock  # slow, for processes that only patch vLLM

    return mock.patch("torch.set_num_threads", import_module("torch").set_num_threads)


def plain_linear(layer: Any, remove_weight: bool = False) -> None:
    """In the place of vLLM's ``dispatch_cpu_unquantized_gemm``: the layer keeps its weight and computes as torch."""
    layer.cpu_linear = import_module("torch.nn.functional").linear


def keep_linear_weights() -> None:
    """On a CPU vLLM packs each linear layer's weight for its own kernel and drops it: the next ones find no place."""
    import_module("vllm.model_executor.layers.linear")
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.") and "dispatch_cpu_unquantized_gemm" in vars(module):
            module.dispatch_cpu_unquantized_gemm = plain_linear
