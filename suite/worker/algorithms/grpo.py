"""GRPO: each sample against the others of its prompt; no values, KL in the loss or none."""

from typing import Optional

import torch

from suite.worker import ppo
from suite.worker.algorithms.base import Loss, Rollouts, Sum, Tensors, WithoutValues

DECLARATION = {
    "name": "grpo",
    "summary": "advantages normalised within the samples of a prompt, clipped policy loss, KL in the loss or none",
    "source": "Shao et al., arXiv 2402.03300; scale=no: Dr. GRPO, 2503.20783; token loss, clip_high: DAPO, 2503.14476",
    "reference": "kl_coefficient",
    "group": 8,
    "least_group": 2,
    "options": {"kl_coefficient": 0.0, "scale": True, "loss": "token", "clip_low": 0.2, "clip_high": 0.2},
    "choices": {"loss": ("token", "sequence")},
    "most": {"clip_low": 1.0},
}
#: Keeps a group of equal scores at advantages of zero; small beside scores of 0 to 1.
_SCALE_EPSILON = 1e-4


class GRPO(WithoutValues):
    def prepare(self, rollouts: Rollouts, total: Sum) -> Tensors:
        """``advantages`` [b]: the score less its group's mean, over the group's (sample) standard deviation where
        ``scale`` is on: 2402.03300, section 4.1.2. A group of equal scores has advantages of zero."""
        scores = rollouts.all_scores.double().view(-1, rollouts.group)
        advantages = scores - scores.mean(dim=1, keepdim=True)
        if self._options["scale"]:
            advantages = advantages / (scores.std(dim=1, keepdim=True) + _SCALE_EPSILON)
        batch = {"advantages": advantages.flatten().float()[rollouts.sample_indices]}
        if rollouts.reference is not None:
            batch["reference"] = rollouts.reference
        return batch

    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        """``token``: every token alike (2503.14476, section 3.3). ``sequence``: every sample alike, and within it every
        token (2402.03300, equation 3)."""
        return mask.float() if self._options["loss"] == "token" else ppo.weights_by_sample(mask)

    def loss(self, logprobs: torch.Tensor, values: Optional[torch.Tensor], micro: Tensors) -> Loss:
        """2402.03300, equation 3, with its estimator of KL (equation 4)."""
        weight, advantages = micro["weight"], micro["advantages"].unsqueeze(1)
        loss, parts = self._clipped(logprobs, micro["logprobs"], advantages, weight)
        if self.uses_reference:
            kl = ppo.kl_to_reference(logprobs, micro["reference"], weight)
            loss = loss + self._options["kl_coefficient"] * kl
            parts.update(loss=loss.detach(), kl_loss=kl.detach())
        return loss, parts


build = GRPO
