"""A manifest's size as the configuration file of a Hugging Face model, by which vLLM builds it."""

import json
import os
from typing import Any, Dict

_CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_LEARNED_POSITIONS_EPSILON, _ROTARY_EPSILON, _ROPE_THETA = 1e-5, 1e-6, 10000.0


def configuration(size: Dict[str, Any], precision: str) -> Dict[str, Any]:
    """What config.json holds: the shape without padding, no dropout, no token that could end a response."""
    common = {
        "architectures": [_CLASSES[size["architecture"]]],
        "model_type": size["architecture"],
        "vocab_size": size["vocab"],
        "tie_word_embeddings": size["tied_embeddings"],
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "dtype": DTYPES[precision],
    }
    return {**common, **(_gpt2(size) if size["architecture"] == "gpt2" else _llama_like(size))}


def write_configuration(folder: str, size: Dict[str, Any], precision: str) -> None:
    """``folder``/config.json, which is all that a model with dummy weights needs."""
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(configuration(size, precision), file)


def _gpt2(size: Dict[str, Any]) -> Dict[str, Any]:
    return {
        "n_embd": size["hidden"],
        "n_inner": size["ffn"],
        "n_layer": size["layers"],
        "n_head": size["heads"],
        "n_positions": size["positions"],
        "activation_function": "gelu_pytorch_tanh",
        "layer_norm_epsilon": size.get("norm_epsilon") or _LEARNED_POSITIONS_EPSILON,
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }


def _llama_like(size: Dict[str, Any]) -> Dict[str, Any]:
    return {
        "hidden_size": size["hidden"],
        "intermediate_size": size["ffn"],
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "num_key_value_heads": size["kv_heads"],
        "head_dim": size.get("head_width") or size["hidden"] // size["heads"],
        "hidden_act": "silu",
        "max_position_embeddings": size["positions"],
        "rms_norm_eps": size.get("norm_epsilon") or _ROTARY_EPSILON,
        "rope_parameters": _rope(size),
        "attention_bias": size["architecture"] == "qwen2",
        "attention_dropout": 0.0,
        "use_sliding_window": False,
    }


def _rope(size: Dict[str, Any]) -> Dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": size.get("rope_theta") or _ROPE_THETA}
    scaling = size.get("rope_scaling")
    if scaling is None:
        return rope
    rope.update(rope_type=scaling["kind"], factor=scaling["factor"])
    if scaling["kind"] == "llama3":
        rope.update(
            low_freq_factor=scaling["low_frequency_factor"],
            high_freq_factor=scaling["high_frequency_factor"],
            original_max_position_embeddings=scaling["original_positions"],
        )
    return rope
