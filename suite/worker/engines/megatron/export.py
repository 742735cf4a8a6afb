"""The policy's weights whole on every rank, one by one: gathered from tensor, expert and pipeline neighbours."""

from typing import Any, Dict, Iterator, List, Tuple

import torch
import torch.distributed as dist

from suite.worker.engines.megatron.model import PolicyModel
from suite.worker.engines.megatron.names import hugging_face_tensors
from suite.worker.engines.megatron.stack import parallel_state
from suite.worker.engines.megatron.weights import (
    expert_names,
    global_parameters,
    is_expert,
    unshard,
    whole_shape,
)

Named = Tuple[str, torch.Tensor]


@torch.no_grad()
def export_weights(model: PolicyModel, size: Dict[str, Any]) -> Iterator[Named]:
    """Under Hugging Face's names, without padding, a tied output layer and a value head. Collective over all ranks."""
    group = parallel_state.get_pipeline_model_parallel_group()
    own = [
        (name, parameter)
        for name, parameter in global_parameters(model)
        if not name.startswith("value_head") and not getattr(parameter, "shared", False)
    ]
    described = [(name, whole_shape(name, parameter, model), is_expert(name)) for name, parameter in own]
    of_stages: List[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(of_stages, described, group=group)
    for stage, tensors in enumerate(of_stages):
        is_own = stage == dist.get_rank(group)
        for number, (name, shape, expert) in enumerate(tensors):
            names = expert_names(name, model.config) if expert else [name]
            if is_own:
                whole = _from_neighbours(own[number][1], shape, expert)
            else:
                whole = [own[0][1].new_empty(shape) for _ in names]
            for each_name, each in zip(names, whole):
                if len(of_stages) > 1:
                    dist.broadcast(each, src=dist.get_global_rank(group, stage), group=group)
                yield from hugging_face_tensors(each_name, each, size)


def _from_neighbours(parameter: torch.nn.Parameter, shape: Tuple[int, ...], expert: bool) -> List[torch.Tensor]:
    """The whole parameter of a stage; of an expert's, those of all expert ranks in their order."""
    if expert:
        return _gather(parameter.detach(), parallel_state.get_expert_model_parallel_group())
    shards = _gather(parameter.detach(), parallel_state.get_tensor_model_parallel_group())
    return [unshard(shards, parameter, shape)]


def _gather(tensor: torch.Tensor, group: Any) -> List[torch.Tensor]:
    if dist.get_world_size(group) == 1:
        return [tensor.clone()]
    gathered = [torch.empty_like(tensor) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, tensor.contiguous(), group=group)
    return gathered
