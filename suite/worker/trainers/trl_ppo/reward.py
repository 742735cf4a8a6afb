"""TRL's PPO asks a module for its rewards: one that gives the manifest's scores and computes nothing."""

from types import SimpleNamespace
from typing import Any, Callable, Dict

import torch
from torch import nn

from suite.worker.rewards import scores_of_own
from suite.worker.samples import Samples


class Scores(nn.Module):
    """The scores of this rank's samples, in their order, wherever in a sample TRL looks for one.

    TRL's ``get_reward`` calls what ``base_model_prefix`` names, and gives its last hidden states to ``score``.
    """

    base_model_prefix = "backbone"

    def __init__(self, manifest: Dict[str, Any], rank: int, iteration: Callable[[], int]) -> None:
        super().__init__()
        self.config = SimpleNamespace()  # DeepSpeed's preparation asks it for a width, and goes on without one
        self.backbone = _Backbone(manifest, rank, iteration)

    def score(self, states: torch.Tensor) -> torch.Tensor:
        return states


class _Backbone(nn.Module):
    def __init__(self, manifest: Dict[str, Any], rank: int, iteration: Callable[[], int]) -> None:
        super().__init__()
        self._manifest, self._rank, self._iteration = manifest, rank, iteration
        # an engine without a parameter does not know its device
        self.nothing = nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, input_ids: torch.Tensor, **others: Any) -> Any:
        """``hidden_states``: [b, T, 1], each sample's score at every token."""
        responses = input_ids[:, self._manifest["workload"]["prompt_tokens"] :]
        scores = scores_of_own(self._manifest, self._iteration(), self._rank, Samples.even(responses, 0))
        return SimpleNamespace(hidden_states=(scores[:, None, None].expand(*input_ids.shape, 1),))
