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
    """``trunk`` is an attribute of the causal language model; ``blocks``, ``norm`` and ``embedding`` are the trunk's.
    ``residual``: how names of weights end whose outputs are added to the residual stream. ``matrices``: of each block,
    by path, how many matrices side by side it is. ``rotary``: whether positions rotate.
    """

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


_GPT2 = Family(
    trunk="transformer",
    blocks="h",
    norm="ln_f",
    embedding="wte",
    residual=("c_proj.weight",),
    # c_attn holds the matrices of query, key and value side by side
    matrices={"attn.c_attn": 3, "attn.c_proj": 1, "mlp.c_fc": 1, "mlp.c_proj": 1},
    rotary=False,
)
_LLAMA = Family(
    trunk="model",
    blocks="layers",
    norm="norm",
    embedding="embed_tokens",
    residual=("o_proj.weight", "down_proj.weight"),
    matrices={
        **dict.fromkeys(("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"), 1),
        **dict.fromkeys(("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"), 1),
    },
    rotary=True,
)
FAMILIES: Dict[str, Family] = {"gpt2": _GPT2, **dict.fromkeys(("llama", "qwen2", "qwen3"), _LLAMA)}


@lru_cache(maxsize=None)
def class_of(architecture: str, name: str = "") -> Type[Any]:
    """The causal language model of a family, or another class beside it."""
    # transformers imports scipy, if it finds it, for losses of object detectors: half a second that no rank needs.
    with mock.patch.object(transformers.utils, "is_scipy_available", lambda: False):
        module = importlib.import_module("transformers.models.{0}.modeling_{0}".format(architecture))
    return getattr(module, name or CLASSES[architecture])


def build_config(size: Dict[str, Any], attention: str = "sdpa") -> Any:
    """The configuration of a manifest's ``size``: no dropout, no token that could end a response early.

    ``vocab_size`` is the padded one, as the matrices are; ``unpadded_vocab`` holds the number of tokens.
    """
    config = class_of(size["architecture"]).config_class(
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
