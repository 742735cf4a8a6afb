"""Decoding one token for every sequence of a batch: bound by bandwidth, by launches and by latency."""

from __future__ import annotations

from suite.planner.formulas.blocks import ELEMENT_BYTES, Numbers


def weight_read_bytes(layers: Numbers, elements: Numbers, hidden: Numbers, vocab: Numbers, tensor: Numbers) -> Numbers:
    """Bytes of weights that each decoding step reads, output head in: all of them, once for the whole batch.

    (Pope et al., "Efficiently Scaling Transformer Inference", arXiv 2211.05102, section 2.) Of experts only those that
    the batch meets are among ``elements``.
    """
    return ELEMENT_BYTES * (layers * elements + vocab * hidden) / tensor


def cache_positions(prompt: Numbers, new: Numbers) -> Numbers:
    """Positions of the cache that one sequence reads in the ``new`` - 1 steps after the prefill: step i prompt + i."""
    steps = new - 1
    return steps * prompt + steps * (steps - 1) / 2


def cache_read_bytes(
    sequences: Numbers, prompt: Numbers, new: Numbers, layers: Numbers, width: Numbers, tensor: Numbers
) -> Numbers:
    """Bytes of keys and values read over the steps of ``sequences`` sequences of one length.

    ``width`` is key-value heads x head dimension (arXiv 2211.05102, section 2: the KV cache grows with the context).
    """
    return position_bytes(sequences * cache_positions(prompt, new), layers, width, tensor)


def position_bytes(positions: Numbers, layers: Numbers, width: Numbers, tensor: Numbers) -> Numbers:
    """Bytes of keys and values of ``positions`` positions in 16 bit."""
    return 2 * ELEMENT_BYTES * positions * layers * width / tensor


def step_flops(
    sequences: Numbers, layers: Numbers, elements: Numbers, hidden: Numbers, vocab: Numbers, tensor: Numbers
) -> Numbers:
    """Matrix FLOPs of one decoding step of ``sequences`` sequences."""
    return 2 * sequences * (layers * elements + vocab * hidden) / tensor
