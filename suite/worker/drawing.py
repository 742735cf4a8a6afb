"""Weights of every model, drawn by their names, so that copies start equal however they are divided."""

import zlib
from typing import Sequence

import torch

INITIAL_DEVIATION = 0.02  # GPT-2's


def normal_weights(
    name: str, shape: Sequence[int], device: torch.device, seed: int, deviation: float = INITIAL_DEVIATION
) -> torch.Tensor:
    """Normal weights in fp32. Another device's generator draws other numbers."""
    generator = torch.Generator(device=device)
    generator.manual_seed(zlib.crc32("{}:{}".format(seed, name).encode()))
    return torch.empty(tuple(shape), device=device).normal_(0.0, deviation, generator=generator)
