"""Bytes of weights, gradients and optimizer states per parameter, by sharding and precision recipe."""

import numpy as np

from suite.planner.formulas.blocks import Numbers


def zero_bytes(stage: Numbers, shards: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """ZeRO on mixed-precision Adam: 2 + 2 + 12 bytes; stages 1, 2, 3 divide optimizer, gradients, weights.

    (Rajbhandari et al., arXiv 1910.02054, section 5; K = 12.)
    """
    weights = 2 / np.where(stage >= 3, shards, 1)
    gradients = 2 / np.where(stage >= 2, shards, 1)
    return weights, gradients, 12 / np.where(stage >= 1, shards, 1)


def megatron_bytes(sharded: Numbers, shards: Numbers, half: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Megatron: weights 2, fp32 gradients 4, optimizer 12, divided by the distributed optimizer: 6 + 12 / d.

    (NVIDIA/Megatron-LM README, "Distributed Optimizer".) ``half`` is 1 for fp16, which keeps gradients in fp16 as well:
    20 bytes, 4 + 16 / d.
    """
    weights = 2.0 + 0 * shards
    optimizer = (12 + 4 * half) / np.where(sharded > 0, shards, 1)
    return weights, 4.0 - 2 * half + 0 * shards, optimizer


def fsdp_bytes(shards: Numbers, gathered: Numbers, accumulated: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """PyTorch FSDP: fp32 weights, fp32 gradients, both moments, all divided; ``gathered`` 1 keeps 16-bit weights whole.

    ``accumulated`` 1 keeps gradients whole besides, in fp32, until the last micro batch (Zhao et al., arXiv 2304.11277,
    sections 4.4 and 3.3.4: mixed precision keeps the full-precision shards; accumulation without communication).
    """
    return 4 / shards + 2 * gathered, 4 / shards + 4 * accumulated, 8 / shards
