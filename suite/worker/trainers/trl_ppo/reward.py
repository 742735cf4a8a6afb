"""TRL's PPO asks a module for its rewards: one that gives the manifest's scores and computes nothing."""

from types import SimpleNamespace
from typing import Any, Callable, Dict

import torch
from torch import nn

from suite.worker.rewards import score_samples
from suite.worker.samples import Samples


class Scores(nn.Module):
    """The scores of this rank's samples, in their order, wherever in a sample TRL looks for one.

    TRL's ``get_reward`` calls what ``base_model_prefix`` names, and gives its last hidden states to ``score``.
    """

    base_model_prefix = "backbone"

    def __init__(self, manifest: Dict[str, Any], rank: int, iteration_seed: Callable[[], int]) -> None:
        super().__init__()
        self.config = SimpleNamespace()  # DeepSpeed's preparation asks it for a width, and goes on without one
        self.backbone = _Backbone(manifest, rank, iteration_seed)

    def score(self, states: torch.Tensor) -> torch.Tensor:
        """[b, T, 1] as it is."""
        return states


class _Backbone(nn.Module):
    def __init__(self, manifest: Dict[str, Any], rank: int, iteration_seed: Callable[[], int]) -> None:
        super().__init__()
        self._reward = manifest["workload"]["reward"]
        self._prompt_tokens = manifest["workload"]["prompt_tokens"]
        self._samples = manifest["work"]["global_rollouts"]
        first = rank * manifest["work"]["replica_rollouts"]
        self._own = slice(first, first + manifest["work"]["replica_rollouts"])
        self._iteration_seed = iteration_seed
        # an engine without a parameter does not know its device
        self.nothing = nn.Parameter(torch.zeros(1), requires_grad=False)

    def forward(self, input_ids: torch.Tensor, **others: Any) -> Any:
        """``hidden_states``: [b, T, 1], each sample's score at every token."""
        scores = self._scores(input_ids)
        return SimpleNamespace(hidden_states=(scores[:, None, None].expand(*input_ids.shape, 1),))

    def _scores(self, tokens: torch.Tensor) -> torch.Tensor:
        if self._reward["kind"] == "pseudo":
            everyone = Samples.even(torch.empty(self._samples, 0, device=tokens.device), 0)
            return score_samples(self._reward, everyone, self._iteration_seed())[self._own]
        return score_samples(self._reward, Samples.even(tokens, self._prompt_tokens), 0)
