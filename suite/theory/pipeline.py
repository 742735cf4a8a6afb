"""Pipeline parallelism: bubble, micro batches in flight, interleaving (Narayanan et al., arXiv 2104.04473, 2.2)."""

from __future__ import annotations

import numpy as np

from suite.theory.blocks import Numbers

#: Layers per model chunk where interleaving is known but its depth is not: what Megatron's recipes come to.
LAYERS_PER_CHUNK = 2


def micro_batches(global_batch: Numbers, data: Numbers, micro_batch: Numbers) -> Numbers:
    """Micro batches of one replica in one optimizer step."""
    return np.maximum(1, np.ceil(global_batch / data / micro_batch))


def bubble(pipeline: Numbers, chunks: Numbers) -> Numbers:
    """Idle time of a 1F1B pipeline in stage times of a micro batch: (p - 1) / v (arXiv 2104.04473, 2.2.2)."""
    return (pipeline - 1) / chunks


def in_flight(pipeline: Numbers, chunks: Numbers, micro_batches: Numbers) -> Numbers:
    """Micro batches whose activations the first stage holds: p, at most all, more when interleaved.

    (Korthikanti et al., arXiv 2205.05198, section 4.2.3: a factor 1 + (p - 1) / (p v).)
    """
    penalty = np.where(chunks > 1, 1 + (pipeline - 1) / (pipeline * chunks), 1.0)
    return np.minimum(pipeline * penalty, np.maximum(micro_batches, 1) * np.where(chunks > 1, penalty, 1))


def usual_chunks(layers: Numbers, pipeline: Numbers) -> Numbers:
    """The interleaving a Megatron recipe would choose."""
    return np.where(pipeline > 1, np.maximum(1, np.round(layers / pipeline / LAYERS_PER_CHUNK)), 1)
