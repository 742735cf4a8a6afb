"""The models that trlx trains, as the transformers that it runs on has them: GPT-2, OPT and Llama shapes."""

from typing import Any, Callable, Dict

import transformers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, OPTConfig, PretrainedConfig

from suite.worker.rank import ConfigError
from suite.worker.trainers.drawn_model import special_ids
from suite.worker.trainers.trlx.source import TESTED_TRANSFORMERS


def build_config(size: Dict[str, Any]) -> PretrainedConfig:
    """The configuration of a manifest's ``size``, as its family has it but without dropout.

    Raises ConfigError where the installed transformers would build another model.
    """
    return _FAMILIES[size["architecture"]](size)


def _gpt2(size: Dict[str, Any]) -> GPT2Config:
    return GPT2Config(
        n_positions=size["positions"],
        n_embd=size["hidden"],
        n_layer=size["layers"],
        n_head=size["heads"],
        n_inner=size["ffn"],
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        **_common(size),
    )


def _opt(size: Dict[str, Any]) -> OPTConfig:
    return OPTConfig(
        max_position_embeddings=size["positions"],
        hidden_size=size["hidden"],
        word_embed_proj_dim=size["hidden"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        ffn_dim=size["ffn"],
        dropout=0.0,
        **_common(size),
    )


def _llama(size: Dict[str, Any]) -> LlamaConfig:
    if size["kv_heads"] != size["heads"] and not hasattr(LlamaConfig(), "num_key_value_heads"):
        # before 4.31 it takes any argument, and gives each head keys and values of its own
        raise ConfigError(
            "transformers {} knows no grouped queries, which {} has ({} heads, {} key-value); install {}".format(
                transformers.__version__, size["name"], size["heads"], size["kv_heads"], TESTED_TRANSFORMERS
            )
        )
    return LlamaConfig(
        max_position_embeddings=size["positions"],
        hidden_size=size["hidden"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        num_key_value_heads=size["kv_heads"],
        intermediate_size=size["ffn"],
        **_common(size),
    )


_FAMILIES: Dict[str, Callable[[Dict[str, Any]], PretrainedConfig]] = {"gpt2": _gpt2, "opt": _opt, "llama": _llama}


def _common(size: Dict[str, Any]) -> Dict[str, Any]:
    ids = special_ids(size["vocab"])
    return {
        "vocab_size": size["vocab"],
        "bos_token_id": ids["<eos>"],
        "eos_token_id": ids["<eos>"],
        "pad_token_id": ids["<pad>"],
        "tie_word_embeddings": size["tied_embeddings"],
    }


def build_model(size: Dict[str, Any]) -> Any:
    """A causal language model in fp32 that is in evaluation mode, as trlx gets one from a folder; undrawn weights."""
    model = AutoModelForCausalLM.from_config(build_config(size)).eval()
    model.config.architectures = [type(model).__name__]  # as a saved model says; trlx chooses its branch by it
    return model
