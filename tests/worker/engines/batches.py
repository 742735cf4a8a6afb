"""A batch to train an engine on, without a loop: PPO's loss, each token with the same weight."""

from __future__ import annotations

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
