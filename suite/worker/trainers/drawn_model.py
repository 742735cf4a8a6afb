"""What a trainer would fetch from a hub, made here: a Hugging Face model with drawn weights, a tokenizer of numbers."""

import json
import os
from typing import Any, Dict, Iterable, List, Tuple

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from suite.worker.hugging_face import shape_fields
from suite.worker.models import normal_weights
from suite.worker.partitioned import whole, whole_elements

#: the last ids of the vocabulary, in this order
SPECIAL_TOKENS = ("<eos>", "<unk>", "<pad>")
_TOKENIZER_SETTINGS = {
    "eos_token": "<eos>",
    "bos_token": "<eos>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "clean_up_tokenization_spaces": False,
    "model_max_length": 10**9,
}


def special_ids(vocab: int) -> Dict[str, int]:
    return {token: vocab - len(SPECIAL_TOKENS) + index for index, token in enumerate(SPECIAL_TOKENS)}


def model_config(size: Dict[str, Any], has_special: bool = True) -> Any:
    """The configuration of a manifest's ``size``, for transformers 5, of whose fields older ones pass over some.

    ``has_special``: the last ids are special tokens; else a tokenizer has them behind the vocabulary.
    """
    ids: Dict[str, Any] = special_ids(size["vocab"]) if has_special else {}
    return AutoConfig.for_model(
        size["architecture"],
        vocab_size=size["vocab"],
        bos_token_id=ids.get("<eos>"),
        eos_token_id=ids.get("<eos>"),
        pad_token_id=ids.get("<pad>"),
        tie_word_embeddings=size["tied_embeddings"],
        **shape_fields(size),
    )


def critic_size(manifest: Dict[str, Any]) -> Dict[str, Any]:
    """The policy's shape, or a GPT-2 of the workload's critic, where it has one, with the policy's vocabulary."""
    size, critic = manifest["size"], manifest["workload"].get("critic")
    if critic is None:
        return size
    own = {"architecture": "gpt2", "kv_heads": critic["heads"], "norm_epsilon": None, "tied_embeddings": True}
    return {**size, **critic, **own}


def build_model(size: Dict[str, Any], has_special: bool = True) -> Any:
    """A causal language model of ``model_config`` in fp32; its weights are still to be drawn (``draw_weights``)."""
    return AutoModelForCausalLM.from_config(model_config(size, has_special), attn_implementation="sdpa")


@torch.no_grad()
def draw_weights(model: nn.Module, seed: int, device: torch.device) -> None:
    """Normal weights of deviation 0.02, biases zero, norms one; each by its name, so that copies start equal.

    They are drawn on ``device`` wherever they lie, because another device's generator draws other numbers.
    """
    for name, parameter in model.named_parameters():
        with whole([parameter], writes=True):
            if not parameter.numel():
                continue
            if name.endswith("bias"):
                parameter.zero_()
            elif "norm" in name or ".ln_" in name:
                parameter.fill_(1.0)
            else:
                parameter.copy_(normal_weights(name, parameter.shape, device, seed))


def draw_model(size: Dict[str, Any], seed: int, device: torch.device, has_special: bool = True) -> Any:
    """``build_model`` with drawn weights, partitioned or whole; equal seeds and sizes give equal models."""
    model = build_model(size, has_special)
    draw_weights(model, seed, device)
    return model


def write_model(folder: str, size: Dict[str, Any], seed: int, precision: torch.dtype, **settings: Any) -> None:
    """``draw_model``'s, as ``from_pretrained`` reads it from a folder that is made, and a tokenizer of numbers."""
    os.makedirs(folder)
    draw_model(size, seed, torch.device("cpu")).to(precision).save_pretrained(folder)
    write_tokenizer(folder, size["vocab"], **settings)


def count_parameters(parameters: Iterable[nn.Parameter]) -> Tuple[int, int]:
    """Elements of all of them, and of those that train; whole under ZeRO-3 too."""
    sizes = [(whole_elements(each), each.requires_grad) for each in parameters]
    return sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)


def count_on_paper(size: Dict[str, Any]) -> Tuple[int, int]:
    """``count_parameters`` of the model of a shape, before one is made."""
    with torch.device("meta"):
        return count_parameters(build_model(size).parameters())


def build_tokenizer(vocab: int) -> PreTrainedTokenizerFast:
    """A tokenizer for which each word is the number of its id, so that text and tokens are one to one."""
    return PreTrainedTokenizerFast(tokenizer_object=_numbers(vocab), **_TOKENIZER_SETTINGS)


def write_tokenizer(folder: str, vocab: int, **more: Any) -> None:
    """``build_tokenizer``'s, as ``AutoTokenizer`` reads it from a folder, with further settings.

    Beside a configuration of Qwen2, transformers 5 takes it for a Qwen2 tokenizer and splits numbers into digits.
    """
    _numbers(vocab).save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", **_TOKENIZER_SETTINGS, **more}, file)


def _numbers(vocab: int) -> Tokenizer:
    words = {str(number): number for number in range(vocab - len(SPECIAL_TOKENS))}
    tokenizer = Tokenizer(WordLevel({**words, **special_ids(vocab)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


def ordinary(prompts: torch.Tensor, vocab: int) -> torch.Tensor:
    """Prompts [n, P], in which ids of special tokens, which decoding would drop, became ordinary ones."""
    return prompts % (vocab - len(SPECIAL_TOKENS))


def as_text(prompts: torch.Tensor, vocab: int) -> List[str]:
    return [" ".join(map(str, row)) for row in ordinary(prompts, vocab).tolist()]


def as_tokens(texts: List[str]) -> torch.Tensor:
    """Texts of equally many words, back to ids: [n, tokens]."""
    return torch.tensor([[int(word) for word in text.split()] for text in texts])
