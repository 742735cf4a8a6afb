"""Generation and weight synchronisation by an engine beside the training stack, from the samples that a run has.

The times are those of the model that is fitted on published iterations (``suite.planner.rl_iteration``): launches,
scheduling, collectives and what waking takes are in. What a run knows better is put in their place: how many samples
its pool holds at once, the longest response, and the positions of the cache that are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from suite.planner.jobs import Column, Jobs
from suite.planner.lengths import Decoding
from suite.planner.rl_iteration import Generation, RLWork, generation_parts
from suite.planner.rl_parameters import load_rl_parameters
from suite.planner.rl_sync import sync_seconds

#: The pool is not asked for its bytes again: ``waves`` says how many samples run together.
_NO_POOL, _WHOLE = np.inf, {"fragmentation": 0.0}


def engine_seconds(
    jobs: Jobs, decoding: Decoding, rollouts: Column, waves: Column | float, weights: float, p: Mapping[str, float]
) -> dict[str, Column]:
    """Seconds of ``sync``, ``prefill`` and ``decode`` of the engine whose samples take longest.

    ``rollouts`` are an engine's samples, ``waves`` how many times over they would fill it, ``weights`` the parameters
    of the whole model.
    """
    response = decoding.steps / rollouts + 1
    prompt = decoding.prompts / rollouts
    # Of the lognormal lengths that read as many positions as these samples do.
    squared = 2 * np.maximum(decoding.read / rollouts - response * prompt, 0) / response**2
    generation = Generation(
        devices=jobs.tensor,
        tensor=jobs.tensor,
        samples=rollouts,
        prompt=prompt,
        response=response,
        longest=decoding.new,
        spread=np.sqrt(np.log(np.maximum(1.0, squared))),
        pool_share=_NO_POOL,
        places=rollouts / waves,
    )
    work = RLWork(jobs=jobs, generation=generation, steps=1, weights=weights)
    rl = load_rl_parameters().values
    parts = generation_parts(work, p, rl, _WHOLE)
    return {
        "sync": sync_seconds(work, rl) + np.zeros(len(jobs)),
        "prefill": parts["prefill"],
        "decode": parts["bulk"] + parts["tail"] - parts["prefill"],
    }
