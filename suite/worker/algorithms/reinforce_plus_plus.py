"""REINFORCE++: PPO's clipped loss without values; KL in the reward of each token, advantages normalised over all."""

from typing import Optional

import torch

from suite.worker import ppo
from suite.worker.algorithms.base import Loss, Rollouts, Sum, Tensors, WithoutValues

DECLARATION = {
    "name": "reinforce++",
    "summary": "returns of penalised rewards, normalised over all tokens of all samples, clipped policy loss",
    "source": "Hu et al., arXiv 2501.03262; kl_coefficient as OpenRLHF's default",
    "reference": "kl_coefficient",
    "options": {"kl_coefficient": 0.01, "clip_low": 0.2, "clip_high": 0.2},
    "most": {"clip_low": 1.0},
}


class ReinforcePlusPlus(WithoutValues):
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

    def loss(self, logprobs: torch.Tensor, values: Optional[torch.Tensor], micro: Tensors) -> Loss:
        return self._clipped(logprobs, micro["logprobs"], micro["advantages"], micro["weight"])


build = ReinforcePlusPlus
