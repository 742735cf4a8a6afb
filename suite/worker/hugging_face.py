"""A manifest's size in the words of Hugging Face's configurations."""

from typing import Any, Dict

_LEARNED_POSITIONS_EPSILON, _ROTARY_EPSILON, _ROPE_THETA = 1e-5, 1e-6, 10000.0


def shape_fields(size: Dict[str, Any]) -> Dict[str, Any]:
    """What a configuration holds of the shape, but for its vocabulary and whether the embedding is tied; no dropout."""
    return _gpt2(size) if size["architecture"] == "gpt2" else _llama_like(size)


def _gpt2(size: Dict[str, Any]) -> Dict[str, Any]:
    return {
        "n_positions": size["positions"],
        "n_embd": size["hidden"],
        "n_layer": size["layers"],
        "n_head": size["heads"],
        "n_inner": size["ffn"],
        "layer_norm_epsilon": size.get("norm_epsilon") or _LEARNED_POSITIONS_EPSILON,
        "activation_function": "gelu_pytorch_tanh",  # GPT-2's tanh approximation, in one kernel
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
        "max_position_embeddings": size["positions"],
        "rms_norm_eps": size.get("norm_epsilon") or _ROTARY_EPSILON,
        "rope_parameters": _rope(size),
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
