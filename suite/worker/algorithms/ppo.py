"""PPO: a clipped policy loss on advantages from learned values, and a clipped value loss."""

from typing import Any, Dict, Optional

import torch

from suite.worker import ppo
from suite.worker.algorithms.base import Algorithm, Loss, Rollouts, Sum, Tensors

DECLARATION = {
    "name": "ppo",
    "summary": "advantages from learned values, clipped policy and value losses, KL in the reward",
    "source": "Schulman et al., arXiv 1707.06347; coefficients in the workload's `ppo`",
    "values": True,
}


class PPO(Algorithm):
    """Coefficients are the workload's ``ppo``, as manifests had them before there were other algorithms."""

    def __init__(self, workload: Dict[str, Any], options: Dict[str, Any]) -> None:
        self._coefficients = workload["ppo"]

    def prepare(self, rollouts: Rollouts, total: Sum) -> Tensors:
        coefficients, mask = self._coefficients, rollouts.mask
        rewards = ppo.penalised_rewards(
            rollouts.scores, rollouts.logprobs, rollouts.reference, coefficients["kl_coefficient"], mask
        )
        advantages, returns = ppo.advantages_and_returns(
            rewards, rollouts.values, coefficients["discount"], coefficients["gae_lambda"]
        )
        return {
            "values": rollouts.values,
            "advantages": ppo.whiten(advantages, total(ppo.moments(advantages[mask]))) * mask,
            "returns": returns,
        }

    def loss(self, logprobs: torch.Tensor, values: Optional[torch.Tensor], micro: Tensors) -> Loss:
        """1707.06347, equation 9 without entropy bonus."""
        coefficients, weight = self._coefficients, micro["weight"]
        policy = ppo.policy_loss(logprobs, micro["logprobs"], micro["advantages"], coefficients["clip_ratio"], weight)
        value = ppo.value_loss(values, micro["values"], micro["returns"], coefficients["clip_value"], weight)
        loss = policy + coefficients["value_coefficient"] * value
        return loss, {"loss": loss.detach(), "policy_loss": policy.detach(), "value_loss": value.detach()}


build = PPO
