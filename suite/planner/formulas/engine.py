"""What a generation engine of its own, such as vLLM, holds: a pool of keys and values, and samples at once.

How long it takes is ``suite.planner.formulas.generation``'s and ``suite.planner.rl_iteration``'s.
"""

from __future__ import annotations

import numpy as np

from suite.planner.jobs import Column
from suite.theory.bandwidth import ENGINE_SAMPLES as MOST_AT_ONCE  # noqa: F401 - the same, by the planner's name

#: Share of the memory that is free when the engine starts of which it makes its pool of keys and values, at most: what
#: the suite's worker asks vLLM for.
POOL_SHARE_OF_FREE = 0.5
#: Tokens of prompts that go through it at once.
BATCHED_TOKENS = 8192


def pool_bytes(free: Column, wanted: Column, longest: Column) -> Column:
    """Bytes of the pool: the ``wanted`` ones, of all samples that run at once, or a share of what is ``free``.

    Never less than the ``longest`` sample, without which an engine does not start.
    """
    return np.minimum(wanted, np.maximum(longest, POOL_SHARE_OF_FREE * free))
