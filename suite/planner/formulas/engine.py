"""A generation engine of its own, such as vLLM: weights synchronised, samples dropped when complete, a pool of cache.

A first model by physics alone. No published row is fitted on it or compared with it: it has no floor of launches, no
scheduling and no cost of putting the engine to sleep and awake, so it is a bound from below on the time.
"""

from __future__ import annotations

import numpy as np

from suite.planner.formulas.blocks import Numbers
from suite.planner.jobs import Column

#: Share of a device's memory that an engine fills with its pool of keys and values (vLLM's ``gpu_memory_utilization``).
POOL_SHARE = 0.9
#: Tokens that go through an engine at once, and sequences whose logits are computed at once (vLLM's defaults).
BATCHED_TOKENS, LOGIT_SEQUENCES = 8192, 256
#: Weights are read and written where they are copied within a device.
COPIES = 2


def pool_bytes(capacity: Column, others: Column, needed: Column, longest: Column) -> Column:
    """Bytes of the pool: what the samples need at once, less where a device has not as much beside ``others``.

    Never less than the ``longest`` sample, without which an engine does not start.
    """
    return np.minimum(needed, np.maximum(longest, POOL_SHARE * capacity - others))


def copy_seconds(weight_bytes: Numbers, bandwidth: Numbers) -> Numbers:
    """Giving the engine the weights: copied once within each device. (What is sharded is gathered before.)"""
    return COPIES * weight_bytes / bandwidth
