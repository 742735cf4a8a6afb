"""The policy's weights whole on every rank, one by one, under the names of Hugging Face's checkpoints.

They are gathered from tensor, expert and pipeline neighbours.
"""

import re
from typing import Any, Dict, Iterator, List, Tuple

import torch
import torch.distributed as dist

from suite.worker.engines.megatron.model import PolicyModel, is_rotary
from suite.worker.engines.megatron.stack import parallel_state
from suite.worker.engines.megatron.weights import expert_names, global_parameters, is_expert, unshard, whole_shape
from suite.worker.hugging_face import head_width

Named = Tuple[str, torch.Tensor]
#: of a parameter: its global name, its whole shape, whether it is an expert's
Described = Tuple[str, Tuple[int, ...], bool]

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


class Exporter:
    """What the stages of a model hold is asked for once; all ranks go through it together."""

    def __init__(self, model: PolicyModel, size: Dict[str, Any]) -> None:
        self._size, self._config = size, model.config
        self._own = [
            (name, parameter)
            for name, parameter in global_parameters(model)
            if not name.startswith("value_head") and not getattr(parameter, "shared", False)
        ]
        own = [(name, whole_shape(name, parameter, model), is_expert(name)) for name, parameter in self._own]
        self._group = parallel_state.get_pipeline_model_parallel_group()
        self._stages: List[List[Described]] = [own] * dist.get_world_size(self._group)
        if len(self._stages) > 1:
            dist.all_gather_object(self._stages, own, group=self._group)

    @torch.no_grad()
    def weights(self) -> Iterator[Named]:
        """Under Hugging Face's names, without padding, a tied output layer and a value head. Collective over all ranks.

        Where nobody else holds a part of it, a tensor is the parameter itself.
        """
        for stage, tensors in enumerate(self._stages):
            is_own = stage == dist.get_rank(self._group)
            for number, (name, shape, expert) in enumerate(tensors):
                names = expert_names(name, self._config) if expert else [name]
                if is_own:
                    whole = _from_neighbours(self._own[number][1], shape, expert)
                else:
                    whole = [self._own[0][1].new_empty(shape) for _ in names]
                for each_name, each in zip(names, whole):
                    if len(self._stages) > 1:
                        dist.broadcast(each, src=dist.get_global_rank(self._group, stage), group=self._group)
                    yield from hugging_face_tensors(each_name, each, self._size)


def _from_neighbours(parameter: torch.nn.Parameter, shape: Tuple[int, ...], expert: bool) -> List[torch.Tensor]:
    """The whole parameter of a stage; of an expert's, those of all expert ranks in their order."""
    if expert:
        return _gather(parameter.detach(), parallel_state.get_expert_model_parallel_group())
    shards = _gather(parameter.detach(), parallel_state.get_tensor_model_parallel_group())
    return [unshard(shards, parameter, shape)]


def _gather(tensor: torch.Tensor, group: Any) -> List[torch.Tensor]:
    if dist.get_world_size(group) == 1:
        return [tensor]
    gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, tensor.contiguous(), group=group)
    return gathered


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
