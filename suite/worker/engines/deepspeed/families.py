"""Model families, by Hugging Face's own classes: their configurations, and what their parts are called."""

import importlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Dict, Tuple, Type
from unittest import mock

import transformers.utils

from suite.worker.hugging_face import CLASSES, shape_fields
from suite.worker.models import padded_vocab


@dataclass(frozen=True)
class Family:
    """One family. ``trunk`` is an attribute of the causal language model; ``blocks``, ``norm`` and ``embedding`` are
    attributes of the trunk. ``residual``: how names of weights end whose outputs are added to the residual stream.
    ``matrices``: of each block, by path, how many matrices side by side it is. ``rotary``: whether positions rotate.
    """

    prefix: str
    trunk: str
    blocks: str
    norm: str
    embedding: str
    residual: Tuple[str, ...]
    matrices: Dict[str, int]
    rotary: bool

    @property
    def vocabulary_weights(self) -> Tuple[str, str]:
        """Names of the matrices with a row for each token."""
        return "{}.{}.weight".format(self.trunk, self.embedding), "lm_head.weight"


def _like_llama(prefix: str) -> Family:
    attention = ("q_proj", "k_proj", "v_proj", "o_proj")
    return Family(
        prefix=prefix,
        trunk="model",
        blocks="layers",
        norm="norm",
        embedding="embed_tokens",
        residual=("o_proj.weight", "down_proj.weight"),
        matrices={
            **{"self_attn." + name: 1 for name in attention},
            **{"mlp." + name: 1 for name in ("gate_proj", "up_proj", "down_proj")},
        },
        rotary=True,
    )


FAMILIES: Dict[str, Family] = {
    "gpt2": Family(
        prefix="GPT2",
        trunk="transformer",
        blocks="h",
        norm="ln_f",
        embedding="wte",
        residual=("c_proj.weight",),
        # c_attn holds the matrices of query, key and value side by side
        matrices={"attn.c_attn": 3, "attn.c_proj": 1, "mlp.c_fc": 1, "mlp.c_proj": 1},
        rotary=False,
    ),
    "llama": _like_llama("Llama"),
    "qwen2": _like_llama("Qwen2"),
    "qwen3": _like_llama("Qwen3"),
}


@lru_cache(maxsize=None)
def class_of(architecture: str, name: str = "") -> Type[Any]:
    """The causal language model of a family, or another class of its modules."""
    name = name or CLASSES[architecture]
    module = "configuration" if name.endswith("Config") else "modeling"
    path = "transformers.models.{0}.{1}_{0}".format(architecture, module)
    # transformers imports scipy, if it finds it, for losses of object detectors: half a second that no rank needs.
    with mock.patch.object(transformers.utils, "is_scipy_available", lambda: False):
        return getattr(importlib.import_module(path), name)


def build_config(size: Dict[str, Any], attention: str = "sdpa") -> Any:
    """The configuration of a manifest's ``size``: no dropout, no token that could end a response early.

    ``vocab_size`` is the padded one, as the matrices are; ``unpadded_vocab`` holds the number of tokens.
    """
    family = FAMILIES[size["architecture"]]
    config = class_of(size["architecture"], family.prefix + "Config")(
        vocab_size=padded_vocab(size["vocab"]),
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        tie_word_embeddings=size["tied_embeddings"],
        attn_implementation=attention,
        **shape_fields(size),
    )
    config.unpadded_vocab = size["vocab"]
    return config
