"""Samples, and batches to train an engine on, without a loop: PPO's loss, each token with the same weight."""

from typing import Any


def even_batch(manifest: dict[str, Any], **tensors: Any) -> dict[str, Any]:
    """``tensors`` [b, R] with the weights that make sums over a micro batch means; every column is a token."""
    import torch

    like = tensors["logprobs"]
    weight = torch.full_like(like, 1 / (manifest["work"]["micro_batch"] * like.size(1)))
    return {**tensors, "mask": torch.ones_like(like, dtype=torch.bool), "weight": weight}


def loss_of(manifest: dict[str, Any]) -> Any:
    """The loss of the manifest's algorithm."""
    from suite.worker.algorithms import build_algorithm

    return build_algorithm(manifest["workload"]).loss


def uneven_samples(vocab: int, prompts: list[int], responses: list[int], seed: int) -> Any:
    """Samples of random tokens with prompts and responses of these lengths, padded behind."""
    import torch

    from suite.worker.samples import Samples

    ends = torch.tensor([prompt + response for prompt, response in zip(prompts, responses, strict=True)])
    columns = int(ends.max())
    tokens = torch.randint(vocab, (len(prompts), columns), generator=torch.Generator().manual_seed(seed))
    return Samples(tokens * (torch.arange(columns) < ends.unsqueeze(1)), prompts, responses)
