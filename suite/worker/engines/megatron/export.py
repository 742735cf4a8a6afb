"""The policy's weights whole on every rank, one by one: gathered from tensor, expert and pipeline neighbours."""

from typing import Any, Dict, Iterator, List, Tuple

import torch
import torch.distributed as dist

from suite.worker.engines.megatron.model import PolicyModel
from suite.worker.engines.megatron.names import hugging_face_tensors
from suite.worker.engines.megatron.stack import parallel_state
from suite.worker.engines.megatron.weights import expert_names, global_parameters, is_expert, unshard, whole_shape

Named = Tuple[str, torch.Tensor]
#: of a parameter: its global name, its whole shape, whether it is an expert's
Described = Tuple[str, Tuple[int, ...], bool]


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
