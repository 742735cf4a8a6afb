"""RLOO: REINFORCE with the mean of a prompt's other samples as baseline; KL in the reward, no values."""

from typing import Optional

import torch

from suite.worker import ppo
from suite.worker.algorithms.base import Loss, Rollouts, Sum, Tensors, WithoutValues

DECLARATION = {
    "name": "rloo",
    "summary": "the other samples of a prompt are the baseline, whole responses are the actions, KL in the reward",
    "source": "Ahmadian et al., arXiv 2402.14740; clipped as TRL's RLOO trainer does",
    "reference": "kl_coefficient",
    "group": 4,
    "least_group": 2,
    "options": {"kl_coefficient": 0.05, "clip_low": 0.2, "clip_high": 0.2},
    "most": {"clip_low": 1.0},
}


class RLOO(WithoutValues):
    def prepare(self, rollouts: Rollouts, total: Sum) -> Tensors:
        """``advantages`` [b]: a sample's reward less the mean reward of the others of its group (2402.14740). The
        reward is the score less ``kl_coefficient`` times the response's summed ``log pi - log ref``."""
        rewards = rollouts.all_scores.double()
        if rollouts.reference is not None:
            own = ((rollouts.logprobs - rollouts.reference) * rollouts.mask).double().sum(dim=1)
            everyone = torch.zeros_like(rewards).index_copy(0, rollouts.sample_indices, own)
            rewards = rewards - self._options["kl_coefficient"] * total(everyone)
        groups = rewards.view(-1, rollouts.group)
        # r - (sum - r) / (G - 1), as the distance from the mean, which is zero where all are equal
        advantages = (groups - groups.mean(dim=1, keepdim=True)) * (rollouts.group / (rollouts.group - 1))
        return {"advantages": advantages.flatten().float()[rollouts.sample_indices]}

    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        return ppo.weights_by_sample(mask)

    def loss(self, logprobs: torch.Tensor, values: Optional[torch.Tensor], micro: Tensors) -> Loss:
        """REINFORCE by the ratio of whole responses' probabilities, clipped as in PPO: at a ratio of 1, as in the
        first optimizer step, its gradient is REINFORCE's ``A grad log pi``. TRL's RLOO trainer does the same."""
        before = (micro["logprobs"] * micro["mask"]).sum(dim=1)
        now = (logprobs * micro["mask"]).sum(dim=1)
        return self._clipped(now, before, micro["advantages"], micro["weight"].sum(dim=1))


build = RLOO
