"""What the models of all engines have alike: types, a padded vocabulary, weights drawn by their names, a value head."""

import math
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


#: of a run's precision
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def dtype_name(precision: str) -> str:
    """As configuration files have it: ``bfloat16``."""
    return str(DTYPES[precision]).replace("torch.", "")


#: Megatron pads to it by default (``--make-vocab-size-divisible-by``): whole tiles for tensor cores
VOCABULARY_MULTIPLE = 128


def padded_vocab(vocab: int, tensor: int = 1) -> int:
    """Rows of the matrices for ``vocab`` tokens: the next multiple of 128 that divides over ``tensor`` ranks.

    For every power of two up to 128 tensor ranks that is the same number. Padded rows stand for no token: an engine
    never samples them, leaves them out of the softmax, and does not count them.
    """
    multiple = VOCABULARY_MULTIPLE * tensor // math.gcd(VOCABULARY_MULTIPLE, tensor)
    return -(-vocab // multiple) * multiple
