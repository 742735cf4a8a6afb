"""Bytes that a backward pass keeps: activations by recompute mode, logits, keys and values."""

import numpy as np

from suite.planner.formulas.blocks import ELEMENT_BYTES, Numbers


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
