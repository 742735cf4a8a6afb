"""What trlx would fetch from a hub, made here: a Hugging Face model with drawn weights, and a tokenizer of words."""

import json
import os
import zlib
from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Dict, List

import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, OPTConfig, PretrainedConfig

from suite.worker.rank import ConfigError
from suite.worker.trainers.trlx.source import TESTED_TRANSFORMERS

INITIAL_DEVIATION = 0.02
#: the last ids of the vocabulary, in this order
SPECIAL_TOKENS = ("<eos>", "<unk>", "<pad>")

#: gives a context in which the parameter is whole on every rank, and changes of rank 0 reach the others
Gather = Callable[[nn.Parameter], ContextManager[Any]]


def special_ids(vocab: int) -> Dict[str, int]:
    """Ids of the special tokens."""
    return {token: vocab - len(SPECIAL_TOKENS) + index for index, token in enumerate(SPECIAL_TOKENS)}


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


def whole(parameter: nn.Parameter) -> ContextManager[Any]:
    """Where nothing is partitioned, every parameter is whole already."""
    return nullcontext()


@torch.no_grad()
def draw_weights(model: nn.Module, seed: int, gather: Gather, device: torch.device) -> None:
    """Normal weights of deviation 0.02, biases zero, norms one; each by its name, so that copies start equal.

    Weights that transformers draws itself are not: it cannot where ZeRO-3 has partitioned them. They are drawn on
    ``device`` wherever they lie, because another device's generator draws other numbers.
    """
    for name, parameter in model.named_parameters():
        with gather(parameter):
            if not parameter.numel():
                continue
            if name.endswith("bias"):
                parameter.zero_()
            elif "norm" in name or ".ln_" in name:
                parameter.fill_(1.0)
            else:
                generator = torch.Generator(device=device)
                generator.manual_seed(zlib.crc32("{}:{}".format(seed, name).encode()))
                drawn = torch.empty(parameter.shape, device=device)
                parameter.copy_(drawn.normal_(0.0, INITIAL_DEVIATION, generator=generator))


def write_tokenizer(folder: str, vocab: int) -> None:
    """A tokenizer for ``AutoTokenizer``: each word is the number of its id, so text and tokens are one to one."""
    ids = special_ids(vocab)
    words = {str(number): number for number in range(vocab - len(SPECIAL_TOKENS))}
    tokenizer = Tokenizer(WordLevel({**words, **ids}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<eos>",
        "bos_token": "<eos>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 10**9,
    }
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump(settings, file)


def as_text(prompts: torch.Tensor, vocab: int) -> List[str]:
    """Prompts [n, P] as words; ids of special tokens, which decoding would drop, become ordinary ones."""
    ordinary = prompts % (vocab - len(SPECIAL_TOKENS))
    return [" ".join(map(str, row)) for row in ordinary.tolist()]


def as_tokens(texts: List[str]) -> torch.Tensor:
    """Texts of equally many words, back to ids: [n, tokens]."""
    return torch.tensor([[int(word) for word in text.split()] for text in texts])
