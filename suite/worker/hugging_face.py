"""A manifest in Hugging Face's words: configurations of its size, arguments of trainers; standard library alone."""

import json
import os
from typing import Any, Dict

#: of each family that is trained and given to vLLM here, the causal language model
CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def head_width(size: Dict[str, Any]) -> int:
    return int(size.get("head_width") or size["hidden"] // size["heads"])


def norm_epsilon(size: Dict[str, Any]) -> float:
    return float(size.get("norm_epsilon") or (1e-5 if size["architecture"] == "gpt2" else 1e-6))


def rope_theta(size: Dict[str, Any]) -> float:
    return float(size.get("rope_theta") or 10000.0)


def write_configuration(folder: str, size: Dict[str, Any], dtype: str) -> None:
    """``folder``/config.json, which is all that a model with dummy weights needs: the shape without padding, no
    dropout, no token that could end a response."""
    common = {
        "architectures": [CLASSES[size["architecture"]]],
        "model_type": size["architecture"],
        "vocab_size": size["vocab"],
        "tie_word_embeddings": size["tied_embeddings"],
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "dtype": dtype,
    }
    rotary = {
        "hidden_act": "silu",
        "attention_bias": size["architecture"] == "qwen2",
        "attention_dropout": 0.0,
        "use_sliding_window": False,
    }
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({**common, **shape_fields(size), **({} if size["architecture"] == "gpt2" else rotary)}, file)


def training_arguments(manifest: Dict[str, Any], folder: str) -> Dict[str, Any]:
    """What TRL's trainers take alike: the optimizer, and that nothing is shown, reported or saved to ``folder``."""
    optimizer = manifest["workload"]["optimizer"]
    return {
        "output_dir": folder,
        "seed": manifest["measure"]["seed"],
        "per_device_train_batch_size": manifest["work"]["micro_batch"],
        "temperature": manifest["workload"]["ppo"]["temperature"],
        "learning_rate": optimizer["learning_rate"],
        "adam_beta1": optimizer["beta1"],
        "adam_beta2": optimizer["beta2"],
        "adam_epsilon": optimizer["epsilon"],
        "weight_decay": optimizer["weight_decay"],
        "max_grad_norm": optimizer["gradient_clip"],
        "lr_scheduler_type": "constant",
        "ds3_gather_for_generation": bool(manifest["layout"].get("gather_for_generation")),
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }


def shape_fields(size: Dict[str, Any]) -> Dict[str, Any]:
    """What a configuration holds of the shape, but for its vocabulary and whether the embedding is tied; no dropout."""
    return {"gpt2": _gpt2, "opt": _opt}.get(size["architecture"], _llama_like)(size)


def _gpt2(size: Dict[str, Any]) -> Dict[str, Any]:
    return {
        "n_positions": size["positions"],
        "n_embd": size["hidden"],
        "n_layer": size["layers"],
        "n_head": size["heads"],
        "n_inner": size["ffn"],
        "layer_norm_epsilon": norm_epsilon(size),
        "activation_function": "gelu_pytorch_tanh",  # GPT-2's tanh approximation, in one kernel
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
    }


def _opt(size: Dict[str, Any]) -> Dict[str, Any]:
    return {
        "max_position_embeddings": size["positions"],
        "hidden_size": size["hidden"],
        "word_embed_proj_dim": size["hidden"],
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "ffn_dim": size["ffn"],
        "dropout": 0.0,
    }


def _llama_like(size: Dict[str, Any]) -> Dict[str, Any]:
    return {
        "hidden_size": size["hidden"],
        "intermediate_size": size["ffn"],
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "num_key_value_heads": size["kv_heads"],
        "head_dim": head_width(size),
        "max_position_embeddings": size["positions"],
        "rms_norm_eps": norm_epsilon(size),
        "rope_parameters": _rope(size),
    }


def _rope(size: Dict[str, Any]) -> Dict[str, Any]:
    rope: Dict[str, Any] = {"rope_type": "default", "rope_theta": rope_theta(size)}
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
