"""REINFORCE++: PPO's clipped loss without values; KL in the reward of each token, advantages normalised over all."""

from typing import Any, Dict, Optional, Tuple

import torch

from suite.worker import ppo
from suite.worker.algorithms.base import Algorithm, Rollouts, Sum, Tensors

DECLARATION = {
    "name": "reinforce++",
    "summary": "returns of penalised rewards, normalised over all tokens of all samples, clipped policy loss",
    "source": "Hu et al., arXiv 2501.03262; kl_coefficient as OpenRLHF's default",
    "values": False,
    "reference": "kl_coefficient",
    "group": 1,
    "least_group": 1,
    "options": {"kl_coefficient": 0.01, "clip_low": 0.2, "clip_high": 0.2},
    "most": {"clip_low": 1.0},
}


class ReinforcePlusPlus(Algorithm):
    uses_values = False

    def __init__(self, options: Dict[str, Any]) -> None:
        self._options = options
        self.uses_reference = options["kl_coefficient"] > 0

    def prepare(self, rollouts: Rollouts, total: Sum) -> Tensors:
        """``advantages`` [b, R]: of each token the sum of its own and all later penalised rewards, undiscounted,
        whitened over the real tokens of all replicas. Equal scores without KL give zeros."""
        mask = rollouts.mask
        reference = rollouts.logprobs if rollouts.reference is None else rollouts.reference
        rewards = ppo.penalised_rewards(
            rollouts.scores, rollouts.logprobs, reference, self._options["kl_coefficient"], mask
        )
        returns = rewards.flip(1).cumsum(1).flip(1)
        return {"advantages": ppo.whiten(returns, total(ppo.moments(returns[mask]))) * mask}

    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        return mask.float()

    def loss(
        self, logprobs: torch.Tensor, values: Optional[torch.Tensor], micro: Tensors
    ) -> Tuple[torch.Tensor, Tensors]:
        low, high, weight = self._options["clip_low"], self._options["clip_high"], micro["weight"]
        loss = ppo.policy_loss(logprobs, micro["logprobs"], micro["advantages"], low, weight, high)
        share = ppo.clipped_share(logprobs, micro["logprobs"], micro["advantages"], low, high, weight)
        return loss, {"loss": loss.detach(), "policy_loss": loss.detach(), "clip_share": share}


def build(workload: Dict[str, Any], options: Dict[str, Any]) -> ReinforcePlusPlus:
    return ReinforcePlusPlus(options)
