"""Scores of finished samples, computed in the main process, where a reward model would run.

Some trainers ask for them sample by sample, or before there is any sample.
"""

from typing import Any, Dict

import torch

from suite.worker.manifest import stream_seed
from suite.worker.samples import Samples


def score_samples(reward: Dict[str, Any], samples: Samples, seed: int) -> torch.Tensor:
    """One fp32 score a sample, [b], by the manifest's ``workload.reward``.

    ``constant``: the same for each; ``token-below``: the share of response tokens with an id below the threshold;
    ``pseudo``: uniform in 0 to 1, from ``seed`` and the sample's row, on the CPU, so that every backend has the same.
    """
    device = samples.tokens.device
    if reward["kind"] == "constant":
        return torch.full((len(samples),), float(reward["value"]), device=device)
    if reward["kind"] == "token-below":
        mask = samples.mask()
        below = (samples.responses() < reward["threshold"]) & mask
        return below.sum(dim=1).float() / mask.sum(dim=1)
    return torch.rand(len(samples), generator=torch.Generator().manual_seed(seed)).to(device)


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
