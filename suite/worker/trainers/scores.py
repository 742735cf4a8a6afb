"""The manifest's scores, where a trainer asks for them sample by sample or before there is any."""

from typing import Any, Dict

import torch

from suite.worker.manifest import stream_seed
from suite.worker.rewards import score_samples
from suite.worker.samples import Samples


def scores_of_all(manifest: Dict[str, Any], iteration: int) -> torch.Tensor:
    """Of all samples of an iteration in their order, as the suite's own loop has them; whatever the responses are."""
    blank = torch.zeros(manifest["work"]["global_rollouts"], 2, dtype=torch.long)
    return score_samples(manifest["workload"]["reward"], Samples.even(blank, 1), stream_seed(manifest, iteration))


def scores_of_own(manifest: Dict[str, Any], iteration: int, rank: int, samples: Samples) -> torch.Tensor:
    """Of this rank's samples, one score each; they are numbered rank by rank."""
    if manifest["workload"]["reward"]["kind"] == "pseudo":
        first = rank * len(samples)
        return scores_of_all(manifest, iteration)[first : first + len(samples)].to(samples.tokens.device)
    return score_samples(manifest["workload"]["reward"], samples, seed=0)
