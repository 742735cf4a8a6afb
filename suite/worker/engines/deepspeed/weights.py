"""A model's parameters: drawn by name, counted without padding, and given away one by one."""

import math
from typing import Any, Iterator, Tuple

import torch

from suite.worker.models import INITIAL_DEVIATION, normal_weights
from suite.worker.partitioned import whole, whole_elements


@torch.no_grad()
def draw_weights(model: Any, seed: int) -> None:
    """Normal weights of deviation 0.02, those added to the residual stream 0.02 / sqrt(2 layers), biases zero, norms
    one, as GPT-2's; rows that pad the vocabulary zero.

    Each parameter has a generator of its own, seeded by its name, so that policy, reference and hydra branch start
    from equal weights, and ZeRO-3 from those of the other stages.
    """
    for own_name, parameter in model.named_parameters():
        name = _twin_name(own_name, model)
        with whole([parameter], writes=True):
            drawn = parameter
            if name in model.family.vocabulary_weights:
                drawn = parameter[: model.config.unpadded_vocab]
                parameter[model.config.unpadded_vocab :] = 0
            if name.endswith(("bias", ".up")):  # a fresh adapter adds nothing
                drawn.zero_()
            elif drawn.dim() == 1:  # of a norm
                drawn.fill_(1.0)
            else:
                residual = 2 * model.config.num_hidden_layers if name.endswith(model.family.residual) else 1
                deviation = INITIAL_DEVIATION / math.sqrt(residual)
                drawn.copy_(normal_weights(name, drawn.shape, drawn.device, seed, deviation))


def _twin_name(name: str, model: Any) -> str:
    """The name of the plain policy's parameter that a parameter of branch or adapter stands for; else the name."""
    name = name.replace(".base.", ".")
    if not name.startswith("branch."):
        return name
    parts = name.split(".")
    if parts[1] == model.family.blocks:
        parts[2] = str(model.config.num_hidden_layers - model.branch.depth + int(parts[2]))
    return ".".join([model.family.trunk, *parts[1:]])


def count_parameters(model: Any) -> Tuple[int, int]:
    """All parameters, and those that train: without a reference branch and vocabulary padding, whole under ZeRO-3."""
    total = trainable = 0
    padding = (model.config.vocab_size - model.config.unpadded_vocab) * model.config.hidden_size
    for name, parameter in model.named_parameters():
        if not name.startswith("branch."):
            size = whole_elements(parameter) - (padding if name in model.family.vocabulary_weights else 0)
            total += size
            trainable += size * parameter.requires_grad
    return total, trainable


@torch.no_grad()
def plain_weights(model: Any) -> Iterator[Tuple[str, torch.Tensor]]:
    """The weights of the family's plain model under its own names, without padding, adapters merged; no value head.
    Each is whole until the next is asked for."""
    modules = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        if name.startswith(("value_head.", "branch.")) or name.endswith((".down", ".up")):
            continue
        path, is_adapted, _ = name.partition(".base.weight")
        adapter: Any = modules[path] if is_adapted else None
        with whole([parameter, adapter.down, adapter.up] if is_adapted else [parameter]):
            weight = adapter.merged() if is_adapted else parameter.detach()
            if name in model.family.vocabulary_weights:
                weight = weight[: model.config.unpadded_vocab]
            yield name.replace(".base.", "."), weight
