"""Manifests of tiny runs of verl."""

from typing import Any

from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Manifest, Measure
from tests.worker.trainers.runs import tiny_shape, trainer_manifest

# vLLM on a CPU has no narrower heads than 32
SHAPE: dict[str, Any] = {"hidden": 64, "ffn": 128, "heads": 2, "positions": 32}
WORK: dict[str, Any] = {"name": "tiny", "prompt_tokens": 6, "new_tokens": 8, "rollouts": 8, "micro_batch": 2}
GRPO: dict[str, Any] = {"algorithm": "grpo", "group": 4}


def verl_manifest(
    ranks: int = 1,
    *,
    sampler: str | None = None,
    python: str | None = None,
    iterations: int = 2,
    shape: dict[str, Any] | None = None,
    **work: Any,
) -> Manifest:
    """``work`` changes the workload, ``shape`` the model; with the stack of ``python``, if any."""
    size = tiny_shape("llama", **{**SHAPE, **(shape or {})})
    asked = LayoutRequest(devices_per_node=ranks, sampler=sampler)
    measure = Measure(device="cpu", precision="fp32", warmup=1, iterations=iterations)
    return trainer_manifest("verl", size, {**WORK, **work}, asked, measure, python)
