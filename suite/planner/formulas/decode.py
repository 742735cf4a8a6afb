"""Decoding one token for every sequence of a batch: bound by bandwidth, by launches and by latency."""

from __future__ import annotations

from suite.planner.formulas.blocks import ELEMENT_BYTES, Numbers


def weight_read_bytes(layers: Numbers, elements: Numbers, hidden: Numbers, vocab: Numbers, tensor: Numbers) -> Numbers:
    """Bytes of weights that each decoding step reads, output head in: all of them, once for the whole batch.

    (Pope et al., "Efficiently Scaling Transformer Inference", arXiv 2211.05102, section 2.)
    """
    return ELEMENT_BYTES * (layers * elements + vocab * hidden) / tensor


def cache_read_bytes(
    sequences: Numbers, prompt: Numbers, new: Numbers, layers: Numbers, width: Numbers, tensor: Numbers
) -> Numbers:
    """Bytes of keys and values read over the ``new`` - 1 steps after the prefill; step i meets prompt + i positions.

    ``width`` is key-value heads x head dimension (arXiv 2211.05102, section 2: the KV cache grows with the context).
    """
    steps = new - 1
    positions = steps * prompt + steps * (steps - 1) / 2
    return 2 * ELEMENT_BYTES * sequences * positions * layers * width / tensor


def step_flops(
    sequences: Numbers, layers: Numbers, elements: Numbers, hidden: Numbers, vocab: Numbers, tensor: Numbers
) -> Numbers:
    """Matrix FLOPs of one decoding step of ``sequences`` sequences."""
    return 2 * sequences * (layers * elements + vocab * hidden) / tensor
