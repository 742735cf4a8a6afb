"""What the loop needs from an algorithm: a batch to train on, and a loss."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Callable, Dict, Optional, Tuple

import torch

from suite.worker import ppo
from suite.worker.samples import Samples

Tensors = Dict[str, torch.Tensor]
#: of one micro batch, and its parts, detached
Loss = Tuple[torch.Tensor, Tensors]
#: Sum over replicas, each counted once; the same on every rank.
Sum = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Rollouts:
    """This replica's finished samples with what the phases gave. b samples, R the longest response, N samples in all.

    ``mask`` [b, R]: which columns are tokens; ``logprobs`` [b, R] fp32 under the policy, zero behind a response, as
    ``values`` and ``reference`` are, which are None where the algorithm has no use for them. ``all_scores`` [N] fp32,
    of every sample in their order, the ``group`` samples of a prompt side by side; ``sample_indices`` [b] int64:
    those of this replica.
    """

    samples: Samples
    mask: torch.Tensor
    logprobs: torch.Tensor
    values: Optional[torch.Tensor]
    reference: Optional[torch.Tensor]
    all_scores: torch.Tensor
    sample_indices: torch.Tensor
    group: int

    @property
    def scores(self) -> torch.Tensor:
        """[b] fp32, of this replica's samples."""
        return self.all_scores[self.sample_indices]


class Algorithm(ABC):
    #: whether a value head or a critic is asked and trained
    uses_values = True
    #: whether the reference policy is asked
    uses_reference = True

    @abstractmethod
    def prepare(self, rollouts: Rollouts, total: Sum) -> Tensors:
        """What training reads, by name, each [b, R] or [b]: advantages and the like. Collective."""

    def weights(self, mask: torch.Tensor) -> torch.Tensor:
        """How much each token counts in the loss of an optimizer step, [b, R] fp32, up to one factor for all: alike."""
        return mask.float()

    @abstractmethod
    def loss(self, logprobs: torch.Tensor, values: Optional[torch.Tensor], micro: Tensors) -> Loss:
        """The loss of one micro batch and its parts, detached: scalars named among ``loss policy_loss value_loss``.

        ``micro`` holds its rows of what ``prepare`` gave, ``logprobs`` of rollout, ``mask``, and ``weight`` [b, R], by
        which sums over tokens become means over the whole optimizer step.
        """


class WithoutValues(Algorithm):
    """One that learns no values, with the options ``kl_coefficient clip_low clip_high``."""

    uses_values = False

    def __init__(self, workload: Dict[str, Any], options: Dict[str, Any]) -> None:
        self._options = options
        self.uses_reference = options["kl_coefficient"] > 0

    def _clipped(
        self, logprobs: torch.Tensor, before: torch.Tensor, advantages: torch.Tensor, weight: torch.Tensor
    ) -> Loss:
        """``ppo.policy_loss`` with its two statistics."""
        low, high = self._options["clip_low"], self._options["clip_high"]
        loss = ppo.policy_loss(logprobs, before, advantages, low, weight, high)
        share = ppo.clipped_share(logprobs, before, advantages, low, high, weight)
        return loss, {"loss": loss.detach(), "policy_loss": loss.detach(), "clip_share": share}
