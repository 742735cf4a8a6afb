"""Weights of a Megatron model by their global names: drawing, freezing, counting.

A global name does not depend on the layout (layers count through all pipeline stages, and the copy of a tied embedding
on the last stage has the embedding's name), nor on whose kernels compute. Each one is drawn whole from a generator
of its own and cut to this rank's shard, so one seed gives one model, whatever the layout, on one kind of device.
"""

import math
import re
from typing import Iterator, List, Optional, Sequence, Tuple

import torch

from suite.worker.engines.megatron.model import PolicyModel
from suite.worker.engines.megatron.native import plain_name
from suite.worker.engines.megatron.stack import TransformerConfig, parallel_state
from suite.worker.models import INITIAL_DEVIATION, normal_weights

#: their outputs are added to the residual stream: GPT-2 scales their deviation by 1 / sqrt(2 layers)
_RESIDUAL_WEIGHTS = ("self_attention.linear_proj.weight", ".linear_fc2.weight")
_VOCABULARY_WEIGHTS = ("embedding.word_embeddings.weight", "output_layer.weight")
_LAYER = re.compile(r"^decoder\.layers\.(\d+)\.")
_EXPERT = re.compile(r"\.local_experts\.(\d+)\.")


def global_parameters(model: PolicyModel) -> Iterator[Tuple[str, torch.nn.Parameter]]:
    config = model.config
    offset = parallel_state.get_pipeline_model_parallel_rank() * (
        config.num_layers // config.pipeline_model_parallel_size
    )
    for name, parameter in model.named_parameters():
        layer = _LAYER.match(name)
        if layer:
            name = "decoder.layers.{}.{}".format(int(layer.group(1)) + offset, plain_name(name[layer.end() :]))
            if is_expert(name):
                name = expert_names(name, config)[parallel_state.get_expert_model_parallel_rank()]
        elif name == "output_layer.weight" and model.share_embeddings_and_output_weights:
            name = "embedding.word_embeddings.weight"
        yield name, parameter


def is_expert(name: str) -> bool:
    """Whether this is one expert's parameter, which only some ranks hold where experts are spread."""
    return _EXPERT.search(name) is not None


def expert_names(name: str, config: TransformerConfig) -> List[str]:
    """The names of the parameters that the expert ranks hold in this one's place, in the order of the ranks."""
    held = config.num_moe_experts // config.expert_model_parallel_size
    number = _EXPERT.search(name)
    place = int(number.group(1)) % held
    return [
        name[: number.start(1)] + str(rank * held + place) + name[number.end(1) :]
        for rank in range(config.expert_model_parallel_size)
    ]


@torch.no_grad()
def draw_weights(model: PolicyModel, seed: int) -> None:
    """Normal weights of deviation 0.02 (GPT-2's), biases zero, norms one; padded vocabulary rows zero."""
    residual = math.sqrt(2 * model.config.num_layers)
    for name, parameter in global_parameters(model):
        if name.endswith("bias"):
            parameter.zero_()
        elif "layernorm" in name:
            parameter.fill_(1.0)
        else:
            deviation = INITIAL_DEVIATION / (residual if name.endswith(_RESIDUAL_WEIGHTS) else 1.0)
            whole = normal_weights(name, whole_shape(name, parameter, model), parameter.device, seed, deviation)
            parameter.copy_(shard(whole, parameter))


def whole_shape(name: str, parameter: torch.nn.Parameter, model: PolicyModel) -> Tuple[int, ...]:
    shape = list(parameter.shape)
    if name in _VOCABULARY_WEIGHTS:
        shape[0] = model.unpadded_vocab
    elif _is_sharded(parameter):
        shape[parameter.partition_dim] *= parallel_state.get_tensor_model_parallel_world_size()
    return tuple(shape)


def shard(whole: torch.Tensor, parameter: torch.nn.Parameter) -> torch.Tensor:
    """This tensor rank's shard of a whole parameter, with rows of zeros where the vocabulary is padded."""
    if not _is_sharded(parameter):
        return whole
    dimension, stride = parameter.partition_dim, _stride(parameter)
    width = parameter.size(dimension) // stride
    missing = width * stride * parallel_state.get_tensor_model_parallel_world_size() - whole.size(dimension)
    if missing:
        whole = torch.nn.functional.pad(whole, (0, 0, 0, missing))
    first = parallel_state.get_tensor_model_parallel_rank() * width
    return torch.cat([part.narrow(dimension, first, width) for part in whole.chunk(stride, dimension)], dimension)


def unshard(shards: Sequence[torch.Tensor], parameter: torch.nn.Parameter, shape: Tuple[int, ...]) -> torch.Tensor:
    """The shards of all tensor ranks as the whole parameter of this shape, without padding."""
    if not _is_sharded(parameter):
        return shards[0]
    dimension, whole = parameter.partition_dim, shards[0]
    if len(shards) > 1:
        parts = zip(*(each.chunk(_stride(parameter), dimension) for each in shards))
        whole = torch.cat([each for part in parts for each in part], dimension)
    return whole.narrow(dimension, 0, shape[dimension]).contiguous()


def _stride(parameter: torch.nn.Parameter) -> int:
    """Into how many parts Megatron splits over the tensor ranks one by one: gate and up of a gated MLP are two."""
    return getattr(parameter, "partition_stride", 1)


def _is_sharded(parameter: torch.nn.Parameter) -> bool:
    return getattr(parameter, "tensor_model_parallel", False)


def freeze_below(model: PolicyModel, trainable_layers: Optional[int]) -> None:
    """Only the last ``trainable_layers`` blocks, the final norm and the value head train; None: everything."""
    if trainable_layers is None:
        return
    first = model.config.num_layers - trainable_layers
    for name, parameter in global_parameters(model):
        layer = _LAYER.match(name)
        trains = int(layer.group(1)) >= first if layer else name.startswith(("decoder.final_layernorm", "value_head"))
        parameter.requires_grad_(trains)


def count_parameters(model: PolicyModel) -> Tuple[int, int]:
    """Of the whole policy all parameters and those that train, without padding, tied ones once; collective."""
    counts = torch.tensor(own_parameters(model), device=next(model.parameters()).device)
    torch.distributed.all_reduce(counts, group=parallel_state.get_pipeline_model_parallel_group())
    total, trainable = counts.tolist()
    return total, trainable


def own_parameters(model: PolicyModel) -> Tuple[int, int]:
    """Of this pipeline stage, over its tensor and expert ranks: all parameters, and those that train."""
    total = trainable = 0
    for name, parameter in global_parameters(model):
        if not getattr(parameter, "shared", False):
            size = math.prod(whole_shape(name, parameter, model))
            size *= model.config.expert_model_parallel_size if is_expert(name) else 1
            total += size
            trainable += size * parameter.requires_grad
    return total, trainable
