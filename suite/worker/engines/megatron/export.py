"""The policy's weights whole on every rank, one by one, under the names of Hugging Face's checkpoints."""

import re
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import torch
import torch.distributed as dist

from suite.worker.engines.megatron.model import PolicyModel, is_rotary
from suite.worker.engines.megatron.stack import parallel_state
from suite.worker.engines.megatron.weights import expert_names, global_parameters, is_expert, unshard, whole_shape
from suite.worker.hugging_face import head_width

Named = Tuple[str, torch.Tensor]
Names = Dict[str, List[str]]

#: by module, of a block within it; of modules that Hugging Face has apart, the parts in the order of Megatron's rows
_GPT2: Names = {
    "embedding.word_embeddings": ["transformer.wte"],
    "embedding.position_embeddings": ["transformer.wpe"],
    "decoder.final_layernorm": ["transformer.ln_f"],
    "output_layer": ["lm_head"],
    "input_layernorm": ["ln_1"],
    "self_attention.linear_qkv": ["attn.c_attn"],
    "self_attention.linear_proj": ["attn.c_proj"],
    "pre_mlp_layernorm": ["ln_2"],
    "mlp.linear_fc1": ["mlp.c_fc"],
    "mlp.linear_fc2": ["mlp.c_proj"],
}
_LLAMA: Names = {
    "embedding.word_embeddings": ["model.embed_tokens"],
    "decoder.final_layernorm": ["model.norm"],
    "output_layer": ["lm_head"],
    "input_layernorm": ["input_layernorm"],
    "self_attention.linear_qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "self_attention.q_layernorm": ["self_attn.q_norm"],
    "self_attention.k_layernorm": ["self_attn.k_norm"],
    "self_attention.linear_proj": ["self_attn.o_proj"],
    "pre_mlp_layernorm": ["post_attention_layernorm"],
    "mlp.linear_fc1": ["mlp.gate_proj", "mlp.up_proj"],
    "mlp.linear_fc2": ["mlp.down_proj"],
}
#: of families with experts, beside those of Llama
_EXPERTS: Dict[str, Names] = {
    "mixtral": {
        "mlp.router": ["block_sparse_moe.gate"],
        "mlp.experts.linear_fc1": ["block_sparse_moe.experts.{}.w1", "block_sparse_moe.experts.{}.w3"],
        "mlp.experts.linear_fc2": ["block_sparse_moe.experts.{}.w2"],
    },
    "qwen3_moe": {
        "mlp.router": ["mlp.gate"],
        "mlp.experts.linear_fc1": ["mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj"],
        "mlp.experts.linear_fc2": ["mlp.experts.{}.down_proj"],
    },
}
_BLOCK = re.compile(r"^decoder\.layers\.(\d+)\.(?:(mlp\.experts\.)local_experts\.(\d+)\.)?(.+)$")


class Exporter:
    """What the stages of a model hold is asked for once; all ranks go through it together."""

    def __init__(self, model: PolicyModel, size: Dict[str, Any]) -> None:
        self._size, self._config = size, model.config
        self._own = [
            (name, parameter)
            for name, parameter in global_parameters(model)
            if not name.startswith("value_head") and not getattr(parameter, "shared", False)
        ]
        own = [(name, whole_shape(name, parameter, model)) for name, parameter in self._own]
        self._group = parallel_state.get_pipeline_model_parallel_group()
        self._stages = [own] * dist.get_world_size(self._group)
        if len(self._stages) > 1:
            dist.all_gather_object(self._stages, own, group=self._group)

    @torch.no_grad()
    def weights(self) -> Iterator[Named]:
        """Without padding, a tied output layer and a value head; collective over all ranks. Where nobody else holds a
        part of it, a tensor is the parameter itself."""
        for stage, tensors in enumerate(self._stages):
            for number, (name, shape) in enumerate(tensors):
                names = expert_names(name, self._config) if is_expert(name) else [name]
                if stage == dist.get_rank(self._group):
                    whole = _from_neighbours(self._own[number][1], shape, is_expert(name))
                else:
                    whole = [self._own[0][1].new_empty(shape) for _ in names]
                for each_name, each in zip(names, whole):
                    if len(self._stages) > 1:
                        dist.broadcast(each, src=dist.get_global_rank(self._group, stage), group=self._group)
                    yield from hugging_face_tensors(each_name, each, self._size)


def _from_neighbours(parameter: torch.nn.Parameter, shape: Tuple[int, ...], expert: bool) -> List[torch.Tensor]:
    """The whole parameter of a stage; of an expert's, those of all expert ranks in their order."""
    find = parallel_state.get_expert_model_parallel_group if expert else parallel_state.get_tensor_model_parallel_group
    group = find()
    gathered = [parameter.detach()]
    if dist.get_world_size(group) > 1:
        gathered = [torch.empty_like(parameter) for _ in range(dist.get_world_size(group))]
        dist.all_gather(gathered, parameter.detach().contiguous(), group=group)
    return gathered if expert else [unshard(gathered, parameter, shape)]


def hugging_face_tensors(name: str, whole: torch.Tensor, size: Dict[str, Any]) -> Iterator[Named]:
    """One whole parameter, by its global name, as the one or more that Hugging Face has in its place."""
    rotary = is_rotary(size)
    names = {**(_LLAMA if rotary else _GPT2), **_EXPERTS.get(size["architecture"], {})}
    module, _, kind = name.rpartition(".")
    block = _BLOCK.match(module)
    if block is None:
        yield "{}.{}".format(names[module][0], kind), whole
        return
    layer, in_expert, expert, module = block.groups(default="")
    prefix = "model.layers" if rotary else "transformer.h"
    for own_name, part in zip(names[in_expert + module], _split(module, whole, size)):
        if not rotary and part.dim() == 2:
            part = part.t()  # GPT-2's Conv1D keeps its weight as [in, out]
        yield "{}.{}.{}.{}".format(prefix, layer, own_name.format(expert), kind), part.contiguous()


def _split(module: str, whole: torch.Tensor, size: Dict[str, Any]) -> Sequence[torch.Tensor]:
    """Rows of one module as Hugging Face has them: q, k and v together or apart, gate and up apart."""
    if module.endswith("linear_fc1") and is_rotary(size):
        return whole.chunk(2)
    if module != "self_attention.linear_qkv":
        return [whole]
    # Megatron keeps, for each key-value head, the queries that share it, then its key, then its value.
    shape = (size["kv_heads"], size["heads"] // size["kv_heads"] + 2, head_width(size), *whole.shape[1:])
    grouped = whole.view(shape)
    apart = [part.reshape(-1, *whole.shape[1:]) for part in (grouped[:, :-2], grouped[:, -2], grouped[:, -1])]
    return apart if is_rotary(size) else [torch.cat(apart)]
