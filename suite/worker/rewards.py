"""Scores of finished samples, computed in the main process, where a reward model would run."""

from typing import Any, Dict

import torch

from suite.worker.rank import ConfigError


def score_samples(reward: Dict[str, Any], responses: torch.Tensor) -> torch.Tensor:
    """One fp32 score a sample, [b, R] -> [b], by the manifest's ``workload.reward``.

    ``constant``: the same for each; ``token-below``: the share of response tokens with an id below the threshold.
    Raises ConfigError for a kind that this worker does not know.
    """
    if reward["kind"] == "constant":
        return torch.full((responses.size(0),), float(reward["value"]), device=responses.device)
    if reward["kind"] == "token-below":
        return (responses < reward["threshold"]).float().mean(dim=1)
    raise ConfigError("this worker knows no reward {!r}; known: constant, token-below".format(reward["kind"]))
