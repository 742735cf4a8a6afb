"""The models that trlx trains, as the transformers that it runs on has them: GPT-2, OPT and Llama shapes."""

from typing import Any, Dict, Tuple

from transformers import AutoConfig, AutoModelForCausalLM

from suite.worker.rank import ConfigError
from suite.worker.trainers.drawn_model import special_ids
from suite.worker.trainers.trlx.source import TESTED_TRANSFORMERS

_LIKE_LLAMA = {
    "max_position_embeddings": "positions",
    "hidden_size": "hidden",
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
}
#: by family: what a configuration calls the fields of a shape
_FIELDS: Dict[str, Dict[str, str]] = {
    "gpt2": {"n_positions": "positions", "n_embd": "hidden", "n_layer": "layers", "n_head": "heads", "n_inner": "ffn"},
    "opt": {**_LIKE_LLAMA, "word_embed_proj_dim": "hidden", "ffn_dim": "ffn"},
    "llama": {**_LIKE_LLAMA, "num_key_value_heads": "kv_heads", "intermediate_size": "ffn"},
}
_DROPOUT: Dict[str, Tuple[str, ...]] = {"gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"), "opt": ("dropout",)}


def build_config(size: Dict[str, Any]) -> Any:
    """The configuration of a manifest's ``size``, as its family has it but without dropout.

    Raises ConfigError where transformers before 4.31 would give each head keys and values of its own.
    """
    family, ids = size["architecture"], special_ids(size["vocab"])
    config = AutoConfig.for_model(
        family,
        vocab_size=size["vocab"],
        bos_token_id=ids["<eos>"],
        eos_token_id=ids["<eos>"],
        pad_token_id=ids["<pad>"],
        tie_word_embeddings=size["tied_embeddings"],
        **{theirs: size[ours] for theirs, ours in _FIELDS[family].items()},
        **dict.fromkeys(_DROPOUT.get(family, ()), 0.0),
    )
    if size["kv_heads"] != size["heads"] and not hasattr(type(config)(), "num_key_value_heads"):
        raise ConfigError(
            "this transformers knows no grouped queries, which {} has; install {}".format(
                size["name"], TESTED_TRANSFORMERS
            )
        )
    return config


def build_model(size: Dict[str, Any]) -> Any:
    """A causal language model in fp32 that is in evaluation mode, as trlx gets one from a folder; undrawn weights."""
    model = AutoModelForCausalLM.from_config(build_config(size)).eval()
    model.config.architectures = [type(model).__name__]  # as a saved model says; trlx chooses its branch by it
    return model
