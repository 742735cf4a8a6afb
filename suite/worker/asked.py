"""What a manifest asks of an iteration: prompts, lengths, the counts of its work, and the scores of samples."""

from typing import Any, Dict, List, Sequence, Tuple

import torch

from suite.worker.manifest import check_found, stream_seed
from suite.worker.samples import Samples

Counts = Dict[str, int]


def sample_lengths(workload: Dict[str, Any], work: Dict[str, Any]) -> Tuple[List[int], List[int]]:
    """Tokens of the prompt and of the response of every sample, in their order."""
    uneven = work.get("lengths")
    if uneven is not None:
        return list(uneven["prompt"]), list(uneven["response"])
    samples = work["global_rollouts"]
    return [workload["prompt_tokens"]] * samples, [workload["new_tokens"]] * samples


def draw_prompts(manifest: Dict[str, Any], iteration: int) -> torch.Tensor:
    """Random prompts of all samples, [N, longest prompt]; equal work has equal prompts, whatever its layout.

    The samples of a group have one prompt. Of a shorter prompt the first tokens count.
    """
    generator = torch.Generator().manual_seed(stream_seed(manifest, iteration))
    group = manifest["workload"].get("group", 1)
    shape = (manifest["work"]["global_rollouts"] // group, manifest["workload"]["prompt_tokens"])
    return torch.randint(manifest["size"]["vocab"], shape, generator=generator).repeat_interleave(group, dim=0)


def prompts_of_groups(manifest: Dict[str, Any], iterations: int) -> torch.Tensor:
    """One for each group of samples, of so many iterations one after the other: [groups, longest prompt]."""
    group = manifest["workload"].get("group", 1)
    return torch.cat([draw_prompts(manifest, iteration)[::group] for iteration in range(iterations)])


def prompts_of(manifest: Dict[str, Any], iteration: int, numbers: Sequence[int], device: torch.device) -> Samples:
    """The prompts of these samples, with the response lengths that are to be forced."""
    prompts, responses = sample_lengths(manifest["workload"], manifest["work"])
    rows = draw_prompts(manifest, iteration)[list(numbers)].to(device)
    own = [prompts[number] for number in numbers]
    rows = rows[:, : max(own)]
    columns = torch.arange(rows.size(1), device=rows.device)
    rows = rows * (columns < torch.tensor(own, device=rows.device).unsqueeze(1))
    return Samples(rows, own, [responses[number] for number in numbers])


def expected_counts(workload: Dict[str, Any], work: Dict[str, Any]) -> Counts:
    """The counts of one iteration that the manifest asks for, global; of uneven samples padding is left open."""
    prompts, responses = sample_lengths(workload, work)
    counts = {
        "samples": len(prompts),
        "prompt_tokens": sum(prompts),
        "response_tokens": sum(responses),
        "trained_tokens": (sum(prompts) + sum(responses)) * workload["ppo_epochs"],
        "optimizer_steps": workload["optimizer_steps"] * workload["ppo_epochs"],
    }
    return counts if work.get("lengths") else {**counts, "padded_tokens": 0}


def check_counts(counts: Counts, workload: Dict[str, Any], work: Dict[str, Any]) -> None:
    """Raise ConfigError, with every number, unless the counts are those that the manifest asks for."""
    asked = expected_counts(workload, work)
    check_found("the iteration was", [(name, number, counts[name]) for name, number in asked.items()], "done")


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
