"""What the models of all engines have alike: weights drawn by their names, so that copies start equal; a value head."""

import zlib
from typing import Sequence

import torch
from torch import nn

INITIAL_DEVIATION = 0.02  # GPT-2's


def normal_weights(
    name: str, shape: Sequence[int], device: torch.device, seed: int, deviation: float = INITIAL_DEVIATION
) -> torch.Tensor:
    """Normal weights in fp32. Another device's generator draws other numbers."""
    generator = torch.Generator(device=device)
    generator.manual_seed(zlib.crc32("{}:{}".format(seed, name).encode()))
    return torch.empty(tuple(shape), device=device).normal_(0.0, deviation, generator=generator)


def build_value_head(hidden: int) -> nn.Sequential:
    """Two linear layers with a ReLU: [*, hidden] -> [*, 1]; ``2 h^2 + 4 h + 1`` parameters.

    The shape is trlx's ``make_head`` (CarperAI/trlx, ``trlx/utils/modeling.py``): width ``2 h`` inside.
    """
    return nn.Sequential(nn.Linear(hidden, 2 * hidden), nn.ReLU(), nn.Linear(2 * hidden, 1))
