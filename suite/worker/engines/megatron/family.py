"""What tells the families apart in Megatron-Core's own options, and the frequencies of rotary positions."""

import math
from typing import Any, Dict, Optional

import torch
import torch.nn.functional as F

from suite.worker.hugging_face import head_width, norm_epsilon, rope_theta

#: families with rotary positions, RMSNorm and a gated SiLU MLP without biases
LLAMA_LIKE = ("llama", "qwen2", "qwen3", "mixtral", "qwen3_moe")
_QK_NORM = ("qwen3", "qwen3_moe")


def is_rotary(size: Dict[str, Any]) -> bool:
    """Whether positions rotate queries and keys, so that there is no table of them."""
    return size["architecture"] in LLAMA_LIKE


def family_options(size: Dict[str, Any], fused: bool) -> Dict[str, Any]:
    """Options of a TransformerConfig. ``fused``: Megatron's own fused bias and activation is called."""
    options: Dict[str, Any] = {"layernorm_epsilon": norm_epsilon(size), "kv_channels": head_width(size)}
    if not is_rotary(size):
        # Megatron's fused GELU is the tanh approximation, which is what GPT-2 uses; F.gelu alone is exact.
        return {**options, "activation_func": F.gelu if fused else gelu_tanh}
    return {
        **options,
        "normalization": "RMSNorm",
        "activation_func": F.silu,
        "gated_linear_unit": True,
        "add_bias_linear": False,
        "add_qkv_bias": size["architecture"] == "qwen2",
        "qk_layernorm": size["architecture"] in _QK_NORM,
        **_expert_options(size),
    }


def _expert_options(size: Dict[str, Any]) -> Dict[str, Any]:
    """Every token goes to the experts that its router chose: no capacity, no dropping, no balancing loss."""
    experts = size.get("experts")
    if experts is None:
        return {}
    return {
        "num_moe_experts": experts["count"],
        "moe_router_topk": experts["per_token"],
        "moe_ffn_hidden_size": size["ffn"],
        # Softmax over the chosen alone, so that they add up to 1, or over all before choosing.
        "moe_router_pre_softmax": not experts.get("normalise", True),
        "moe_router_load_balancing_type": "none",
        "moe_aux_loss_coeff": 0.0,
        "moe_token_dispatcher_type": "alltoall",
    }


def gelu_tanh(states: torch.Tensor) -> torch.Tensor:
    return F.gelu(states, approximate="tanh")


def inverse_frequencies(size: Dict[str, Any]) -> torch.Tensor:
    """[head width / 2] fp32: radians per position, as Hugging Face computes them.

    Megatron-Core's own llama3 scaling has Llama 3.1's constants written into it, where a configuration may have others.
    """
    width = head_width(size)
    exponents = torch.arange(0, width, 2, dtype=torch.int64).float() / width
    frequencies = 1.0 / (rope_theta(size) ** exponents)
    return _scaled(frequencies, size.get("rope_scaling"))


def _scaled(frequencies: torch.Tensor, scaling: Optional[Dict[str, Any]]) -> torch.Tensor:
    """Linear: all by ``factor``. llama3: those that turn less than ``low_frequency_factor`` times within the original
    positions, not those that turn more than ``high_frequency_factor`` times, and a blend between."""
    if scaling is None:
        return frequencies
    if scaling["kind"] == "linear":
        return frequencies / scaling["factor"]
    low, high = scaling["low_frequency_factor"], scaling["high_frequency_factor"]
    turns = scaling["original_positions"] * frequencies / (2 * math.pi)
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - kept) * frequencies / scaling["factor"] + kept * frequencies
