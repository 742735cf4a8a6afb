"""Manifests of tiny runs of verl."""

from __future__ import annotations

import json
from typing import Any

from suite.backends.base import choice
from suite.backends.registry import find_backend
from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Limits, Manifest, Measure
from suite.spec.resolve import make_manifest
from suite.spec.shape import Shape
from suite.spec.workload import Workload

# vLLM on a CPU has no narrower heads than 32
SHAPE: dict[str, Any] = {
    "name": "tiny-llama",
    "architecture": "llama",
    "layers": 2,
    "hidden": 64,
    "ffn": 128,
    "heads": 2,
    "kv_heads": 2,
    "vocab": 131,
    "positions": 32,
}
WORK: dict[str, Any] = {"name": "tiny", "prompt_tokens": 6, "new_tokens": 8, "rollouts": 8, "micro_batch": 2}
GRPO: dict[str, Any] = {"algorithm": "grpo", "group": 4}


def verl_manifest(
    ranks: int = 1,
    *,
    sampler: str | None = None,
    stack: dict[str, str] | None = None,
    measure: dict[str, Any] | None = None,
    shape: dict[str, Any] | None = None,
    **work: Any,
) -> Manifest:
    """``work`` changes the workload, ``shape`` the model."""
    driver, size = find_backend("verl"), Shape(**{**SHAPE, **(shape or {})})
    workload = Workload.model_validate({**WORK, **work})
    return make_manifest(
        plan="tests",
        repeat=1,
        backend=choice(driver),
        size=size,
        workload=workload,
        layout=driver.layout(size, workload, LayoutRequest(devices_per_node=ranks, sampler=sampler)),
        measure=Measure(**{"device": "cpu", "precision": "fp32", "warmup": 1, "iterations": 2, **(measure or {})}),
        limits=Limits(run_seconds=540, silence_seconds=500),
        stack=stack or {},
    )


def as_read(manifest: Manifest) -> dict[str, Any]:
    """As the worker has it."""
    body: dict[str, Any] = json.loads(manifest.model_dump_json(by_alias=True))
    return body
