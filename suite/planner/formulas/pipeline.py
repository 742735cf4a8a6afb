"""Pipeline parallelism: bubble, micro batches in flight, interleaving (Narayanan et al., arXiv 2104.04473, 2.2)."""

import numpy as np

from suite.planner.formulas.blocks import Numbers


def micro_batches(global_batch: Numbers, data: Numbers, micro_batch: Numbers) -> Numbers:
    """Micro batches of one replica in one optimizer step."""
    return np.maximum(1, np.ceil(global_batch / data / micro_batch))


def bubble(pipeline: Numbers, chunks: Numbers) -> Numbers:
    """Idle time of a 1F1B pipeline in stage times of a micro batch: (p - 1) / v (arXiv 2104.04473, 2.2.2)."""
    return (pipeline - 1) / chunks


def in_flight(pipeline: Numbers, chunks: Numbers, micro_batches: Numbers, behind: Numbers) -> Numbers:
    """Micro batches whose activations a stage holds with ``behind`` stages after it: one more than these, at most all.

    Interleaved, its warm-up is 2 ``behind`` + (v - 1) p chunks of 1 / v of the stage each: for the first stage
    p (1 + (p - 1) / (p v)) micro batches (Korthikanti et al., arXiv 2205.05198, section 4.2.3).
    """
    interleaved = (2 * behind + (chunks - 1) * pipeline + 1) / chunks
    return np.minimum(np.where(chunks > 1, interleaved, behind + 1), np.maximum(micro_batches, 1))
