"""Manifests of the size that the recorded logs are of: 16 samples of 8 + 8 tokens, two devices, two optimizer steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from suite.spec.workload import Workload
from tests.synthetic import LLAMA, synthetic_manifest

HERE = Path(__file__).parent
LOGS = {
    name.rpartition("-")[0]: HERE / "logs" / f"{name}.jsonl" for name in ("nemo-rl-0.7.0", "skyrl-0.4.0", "areal-1.0.4")
}


def made_manifest(backend: str, kl_coefficient: float = 0.001, device: str = "cuda", **changes: Any) -> Manifest:
    """GRPO in groups of two on a Llama of the least size; three iterations behind one of warm-up."""
    fields = {
        "name": "grpo-tiny",
        "prompt_tokens": 8,
        "new_tokens": 8,
        "rollouts": 8,
        "micro_batch": 2,
        "algorithm": f"grpo:kl_coefficient={kl_coefficient}",
        "group": 2,
        "optimizer_steps": 2,
    }
    return synthetic_manifest(
        backend=backend,
        kind="trainer",
        size=LLAMA,
        workload=Workload.model_validate({**fields, **changes}),
        layout=Layout(devices_per_node=2, data=2, engine="fsdp2", zero_stage=3, generation="vllm"),
        device=device,
        precision="bf16" if device == "cuda" else "fp32",
        warmup=1,
        iterations=3,
    )


def body(manifest: Manifest) -> dict[str, Any]:
    """As the worker reads it."""
    dumped: dict[str, Any] = manifest.model_dump(mode="json", by_alias=True)
    return dumped
