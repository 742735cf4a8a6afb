"""How far the log-probs of two stacks lie apart on the same samples, and how long samples waited for the longest."""

import math
from typing import Callable, Dict, Optional, Sequence

import torch

Figures = Dict[str, Optional[float]]
#: Sum, or largest, over replicas, each counted once; the same on every rank.
Reduce = Callable[[torch.Tensor], torch.Tensor]


def idle_slot_seconds(finish_seconds: Optional[Sequence[float]]) -> Optional[float]:
    """Mean over this rank's samples of the time between a sample's own end and that of the last one.

    ``finish_seconds``: when each was complete, after the start of generation. None: not told.
    """
    if not finish_seconds:
        return None
    return max(0.0, max(finish_seconds) - sum(finish_seconds) / len(finish_seconds))


def mismatch(own: torch.Tensor, engines: torch.Tensor, mask: torch.Tensor, total: Reduce, largest: Reduce) -> Figures:
    """The policy's ``own`` log-probs against those of the engine that sampled, over the real response tokens of all
    replicas: [b, R] each. Collective.

    ``logprob_difference_mean`` and ``_max``: of ``|own - engine|``. ``effective_sample_size``: ``(sum w)^2 / (n sum
    w^2)`` with the importance weight of each of the n tokens, ``w = exp(own - engine)``: 1 where both stacks agree,
    1 / n where one token outweighs all others. All None where a number is not finite.
    """
    difference = own[mask].double() - engines.to(own.device)[mask].double()
    highest = largest(difference.max())  # one factor for all weights leaves the share as it is and bounds their sums
    weights = torch.exp(difference - highest)
    one = torch.ones_like(weights)
    sums = total(torch.stack([part.sum() for part in (one, difference.abs(), weights, weights.square())]))
    tokens, apart, weight, squares = sums.tolist()
    found = {
        "logprob_difference_mean": apart / tokens,
        "logprob_difference_max": float(largest(difference.abs().max())),
        "effective_sample_size": weight**2 / (tokens * squares) if squares > 0 else math.nan,
    }
    is_finite = all(math.isfinite(number) for number in found.values())
    return {name: number if is_finite else None for name, number in found.items()}
