"""Split placement as backends take it: what is asked for, and what cannot be."""

from __future__ import annotations

from typing import Any

from suite.spec.layout import Layout, LayoutRequest


def placed(request: LayoutRequest) -> dict[str, Any]:
    """The fields of a layout that say which ranks generate and how far ahead; none where all do. Raises ValueError."""
    if request.placement != "split":
        for option in ("generation_ranks", "staleness"):
            if getattr(request, option) and request.placement is None:
                raise ValueError(f"--{option.replace('_', '-')} is for --placement split")
        return {}
    if not request.generation_ranks:
        raise ValueError("--placement split needs --generation-ranks: how many ranks generate and do not train")
    if request.generation_ranks >= request.ranks:
        raise ValueError(
            f"{request.generation_ranks} of {request.ranks} ranks generate, so none is left to train: split placement "
            f"needs more than {request.generation_ranks} ranks"
        )
    ahead = {"staleness": request.staleness} if request.staleness else {}
    return {"placement": "split", "generation_ranks": request.generation_ranks, **ahead}


def training_ranks(request: LayoutRequest) -> int:
    """Ranks that are left to train. Raises ValueError as ``placed`` does."""
    generating: int = placed(request).get("generation_ranks", 0)
    return request.ranks - generating


def placement_errors(layout: Layout) -> list[str]:
    """Why an engine cannot hand its weights to ranks of their own; empty when it can, and where none generate alone."""
    if layout.placement != "split":
        return []
    errors = []
    if layout.nodes > 1:
        errors.append("split placement is for the ranks of one node: --nodes 1")
    if layout.generation == "hf" and (layout.tensor > 1 or layout.pipeline > 1 or layout.expert > 1):
        errors.append(
            "under split placement weights cross parameter by parameter to the stack's own loop, between ranks that "
            "hold them whole: tensor, pipeline and expert parallel must be 1, or --generation vllm"
        )
    if layout.gather_for_generation:
        errors.append("--gather-for-generation is for ranks that generate themselves, not for --placement split")
    return errors
