"""From Megatron's whole parameters to the names and shapes that the family has in Hugging Face's checkpoints."""

import re
from typing import Any, Dict, Iterator, List, Tuple

import torch

from suite.worker.engines.megatron.family import is_rotary
from suite.worker.hugging_face import head_width

Named = Tuple[str, torch.Tensor]

_GPT2 = {
    "embedding.word_embeddings": "transformer.wte",
    "embedding.position_embeddings": "transformer.wpe",
    "decoder.final_layernorm": "transformer.ln_f",
    "output_layer": "lm_head",
}
_LLAMA = {
    "embedding.word_embeddings": "model.embed_tokens",
    "decoder.final_layernorm": "model.norm",
    "output_layer": "lm_head",
}
#: within a block; of modules that Hugging Face has apart, the parts in the order of Megatron's rows
_GPT2_BLOCK: Dict[str, List[str]] = {
    "input_layernorm": ["ln_1"],
    "self_attention.linear_qkv": ["attn.c_attn"],
    "self_attention.linear_proj": ["attn.c_proj"],
    "pre_mlp_layernorm": ["ln_2"],
    "mlp.linear_fc1": ["mlp.c_fc"],
    "mlp.linear_fc2": ["mlp.c_proj"],
}
_LLAMA_BLOCK: Dict[str, List[str]] = {
    "input_layernorm": ["input_layernorm"],
    "self_attention.linear_qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "self_attention.q_layernorm": ["self_attn.q_norm"],
    "self_attention.k_layernorm": ["self_attn.k_norm"],
    "self_attention.linear_proj": ["self_attn.o_proj"],
    "pre_mlp_layernorm": ["post_attention_layernorm"],
    "mlp.linear_fc1": ["mlp.gate_proj", "mlp.up_proj"],
    "mlp.linear_fc2": ["mlp.down_proj"],
    "mlp.router": ["mlp.gate"],
}
#: of one expert, by family: the module that holds it, then gate, up and down
_EXPERT = {
    "mixtral": ("block_sparse_moe.experts", ("w1", "w3", "w2")),
    "qwen3_moe": ("mlp.experts", ("gate_proj", "up_proj", "down_proj")),
}
_BLOCK = re.compile(r"^decoder\.layers\.(\d+)\.(.+)\.(weight|bias)$")
_IN_EXPERT = re.compile(r"^mlp\.experts\.local_experts\.(\d+)\.linear_fc([12])$")


def hugging_face_tensors(name: str, whole: torch.Tensor, size: Dict[str, Any]) -> Iterator[Named]:
    """One whole parameter, by its global name, as the one or more that Hugging Face has in its place."""
    block = _BLOCK.match(name)
    if block is None:
        module, _, kind = name.rpartition(".")
        yield "{}.{}".format((_LLAMA if is_rotary(size) else _GPT2)[module], kind), whole
        return
    layer, module, kind = block.groups()
    parts = _split(module, whole, size)
    prefix = "model.layers" if is_rotary(size) else "transformer.h"
    for own_name, part in zip(_names_in_block(module, size["architecture"]), parts):
        if not is_rotary(size) and part.dim() == 2:
            part = part.t()  # GPT-2's Conv1D keeps its weight as [in, out]
        yield "{}.{}.{}.{}".format(prefix, layer, own_name, kind), part.contiguous()


def _names_in_block(module: str, architecture: str) -> List[str]:
    expert = _IN_EXPERT.match(module)
    if expert is not None:
        where, (gate, up, down) = _EXPERT[architecture]
        own = (gate, up) if expert.group(2) == "1" else (down,)
        return ["{}.{}.{}".format(where, expert.group(1), each) for each in own]
    if architecture == "mixtral" and module == "mlp.router":
        return ["block_sparse_moe.gate"]
    return (_GPT2_BLOCK if architecture == "gpt2" else _LLAMA_BLOCK)[module]


def _split(module: str, whole: torch.Tensor, size: Dict[str, Any]) -> List[torch.Tensor]:
    """Rows of one module as Hugging Face has them: q, k and v together or apart, gate and up apart."""
    if module == "self_attention.linear_qkv":
        parts = _split_qkv(whole, size)
        return parts if is_rotary(size) else [torch.cat(parts)]
    if module.endswith("linear_fc1") and is_rotary(size):
        return list(whole.chunk(2))
    return [whole]


def _split_qkv(whole: torch.Tensor, size: Dict[str, Any]) -> List[torch.Tensor]:
    """Megatron keeps, for each key-value head, the queries that share it, then its key, then its value."""
    groups, width = size["kv_heads"], head_width(size)
    grouped = whole.view(groups, size["heads"] // groups + 2, width, *whole.shape[1:])
    apart = grouped[:, :-2], grouped[:, -2], grouped[:, -1]
    return [part.reshape(-1, *whole.shape[1:]) for part in apart]
