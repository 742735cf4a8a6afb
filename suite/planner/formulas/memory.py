"""Bytes that a rank holds: weights, gradients and optimizer states by recipe, and what a backward pass keeps."""

import numpy as np

from suite.planner.formulas.blocks import ELEMENT_BYTES, Numbers


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


def outside_bytes(tokens: Numbers, hidden: Numbers, split: Numbers, dropout: Numbers) -> Numbers:
    """Per block, not divided by tensor parallelism: norms' and projections' inputs, 8 s b h; dropout masks, 2 s b h.

    (Korthikanti et al., arXiv 2205.05198, equation 2. ``split`` is t under sequence parallelism, equation 4, else 1.)
    """
    return (8 + 2 * dropout) * tokens * hidden / split


def inside_bytes(
    tokens: Numbers, width: Numbers, ffn: Numbers, kv_share: Numbers, gated: Numbers, tensor: Numbers
) -> Numbers:
    """Per block: queries, keys, values and attention's output, and the MLP's inner width before and after.

    24 s b h / t for 4 h wide, ungated MLPs, as many key-value heads as heads and ``width``, heads x head dimension, of
    h (arXiv 2205.05198, equation 2). ``ffn`` is the inner width of all experts that a token meets.
    """
    attention = width * (2 + 2 * kv_share)
    return ELEMENT_BYTES * tokens * (attention + (2 + gated) * ffn) / tensor


def score_bytes(tokens: Numbers, sequence: Numbers, heads: Numbers, tensor: Numbers) -> Numbers:
    """Per block, unfused attention: 5 a s^2 b / t (arXiv 2205.05198, equation 2); fused attention keeps none of it."""
    return 5 * tokens * sequence * heads / tensor


def kept_bytes(
    recompute: Numbers, outside: Numbers, inside: Numbers, scores: Numbers, inputs: Numbers, operators_share: Numbers
) -> Numbers:
    """What one block keeps under recompute modes 0 none, 1 selective, 2 operators, 3 full (arXiv 2205.05198, table 2).

    ``inputs`` is the block's input, all that full recomputation keeps; ``operators_share`` what is kept of the rest
    where single operators are chosen.
    """
    whole = outside + inside
    return np.select(
        [recompute == 3, recompute == 2, recompute == 1], [inputs, operators_share * whole, whole], whole + scores
    )
