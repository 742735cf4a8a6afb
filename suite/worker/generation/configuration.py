"""A manifest's size as the configuration file of a Hugging Face model, by which vLLM builds it."""

import json
import os
from typing import Any, Dict

from suite.worker.hugging_face import shape_fields
from suite.worker.precision import dtype_name

_CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


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
        "dtype": dtype_name(precision),
    }
    rotary = {
        "hidden_act": "silu",
        "attention_bias": size["architecture"] == "qwen2",
        "attention_dropout": 0.0,
        "use_sliding_window": False,
    }
    return {**common, **shape_fields(size), **({} if size["architecture"] == "gpt2" else rotary)}


def write_configuration(folder: str, size: Dict[str, Any], precision: str) -> None:
    """``folder``/config.json, which is all that a model with dummy weights needs."""
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(configuration(size, precision), file)
