"""A generation engine of its own, such as vLLM: weights synchronised, samples dropped when complete, a pool of cache.

A first model by physics alone. It is fitted on no published row and was compared with none: it has no floor of
launches, no scheduling and no cost of putting the engine to sleep and awake, so it is a bound from below on the time.
"""

from __future__ import annotations

import numpy as np

from suite.planner.formulas.blocks import Numbers
from suite.planner.jobs import Column

#: Share of the memory that is free when the engine starts of which it makes its pool of keys and values, at most, and
#: how many samples it takes up at once: what the suite's worker asks vLLM for.
POOL_SHARE_OF_FREE, MOST_AT_ONCE = 0.5, 256
#: Tokens of prompts that go through it at once.
BATCHED_TOKENS = 8192
#: Weights are read and written where they are copied within a device.
COPIES = 2


def pool_bytes(free: Column, wanted: Column, longest: Column) -> Column:
    """Bytes of the pool: the ``wanted`` ones, of all samples that run at once, or a share of what is ``free``.

    Never less than the ``longest`` sample, without which an engine does not start.
    """
    return np.minimum(wanted, np.maximum(longest, POOL_SHARE_OF_FREE * free))


def copy_seconds(weight_bytes: Numbers, bandwidth: Numbers) -> Numbers:
    """Giving the engine the weights: copied once within each device. (What is sharded is gathered before.)"""
    return COPIES * weight_bytes / bandwidth
