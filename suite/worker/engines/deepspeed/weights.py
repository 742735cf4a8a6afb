"""A model's parameters: drawn by name, counted without padding, and given away one by one."""

import math
from typing import Any, Dict, Iterator, List, Tuple

import torch
from torch import nn

from suite.worker.models import INITIAL_DEVIATION, normal_weights
from suite.worker.partitioned import whole, whole_elements


@torch.no_grad()
def draw_weights(model: Any, seed: int) -> None:
    """Normal weights of deviation 0.02, those added to the residual stream 0.02 / sqrt(2 layers), biases zero, norms
    one, as GPT-2's.

    Each parameter has a generator of its own, seeded by its name, so that policy, reference and hydra branch start
    from equal weights, and ZeRO-3 from those of the other stages. Rows that pad the vocabulary are zero.
    """
    norms = _norm_weights(model)
    for name, parameter in model.named_parameters():
        with whole([parameter], writes=True):
            if parameter.numel():
                drawn = parameter
                if name in model.family.vocabulary_weights:
                    drawn = parameter[: model.config.unpadded_vocab]
                    parameter[model.config.unpadded_vocab :] = 0
                if name in norms:
                    drawn.fill_(1.0)
                else:
                    _draw(_twin_name(name, model), drawn, seed, model)


def _norm_weights(model: nn.Module) -> List[str]:
    kinds = [(path, type(module).__name__) for path, module in model.named_modules()]
    return ["{}.weight".format(path) for path, kind in kinds if kind.endswith(("LayerNorm", "RMSNorm"))]


def _twin_name(name: str, model: Any) -> str:
    """The name of the plain policy's parameter that a parameter of branch or adapter stands for; else the name."""
    name = name.replace(".base.", ".")
    if model.branch is None or not name.startswith("branch."):
        return name
    parts = name.split(".")
    if parts[1] == model.family.blocks:
        parts[2] = str(model.config.num_hidden_layers - model.branch.depth + int(parts[2]))
    return ".".join([model.family.trunk, *parts[1:]])


def _draw(name: str, parameter: torch.Tensor, seed: int, model: Any) -> None:
    if name.endswith(("bias", ".up")):  # a fresh adapter adds nothing
        parameter.zero_()
        return
    residual = math.sqrt(2 * model.config.num_hidden_layers) if name.endswith(model.family.residual) else 1.0
    parameter.copy_(normal_weights(name, parameter.shape, parameter.device, seed, INITIAL_DEVIATION / residual))


def count_parameters(model: Any) -> Tuple[int, int]:
    """A model without its reference branch: all parameters, and those that train.

    Whole under ZeRO-3 too; without vocabulary padding.
    """
    own = [(name, parameter) for name, parameter in model.named_parameters() if not name.startswith("branch.")]
    sizes = [(_unpadded_size(name, parameter, model), parameter.requires_grad) for name, parameter in own]
    return sum(size for size, _ in sizes), sum(size for size, trains in sizes if trains)


def _unpadded_size(name: str, parameter: nn.Parameter, model: Any) -> int:
    config = model.config
    padding = config.vocab_size - config.unpadded_vocab if name in model.family.vocabulary_weights else 0
    return whole_elements(parameter) - padding * config.hidden_size


@torch.no_grad()
def plain_weights(model: Any) -> Iterator[Tuple[str, torch.Tensor]]:
    """The weights of the family's plain model under its own names, without padding, adapters merged; no value head.

    Each is whole until the next is asked for.
    """
    adapted: Dict[str, Any] = {
        path + ".base.weight": module for path, module in model.named_modules() if hasattr(module, "merged")
    }
    for name, parameter in model.named_parameters():
        if name.startswith(("value_head.", "branch.")) or name.endswith((".down", ".up")):
            continue
        adapter = adapted.get(name)
        needed = [parameter] if adapter is None else [parameter, adapter.down, adapter.up]
        with whole(needed):
            weight = parameter.detach() if adapter is None else adapter.merged()
            if name in model.family.vocabulary_weights:
                weight = weight[: model.config.unpadded_vocab]
            yield name.replace(".base.", "."), weight
