"""trlx refuses shapes that its models would silently not have."""

from __future__ import annotations

import pytest

from suite.backends.registry import find_backend
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout
from suite.spec.manifest import Measure


@pytest.mark.parametrize("backend", ["trlx-deepspeed", "trlx-ddp"])
@pytest.mark.parametrize(
    ("size", "reason"),
    [
        ("1M", None),
        ("deepseek-llm-7b", None),
        ("8M-qwen2", "8M-qwen2 is of the qwen2 family"),
        ("1M-moe", "1M-moe is of the qwen3_moe family"),
        ("1M-llama", "with the defaults of norm_epsilon; 1M-llama has its own"),
        ("Llama-3.1-8B", "with the defaults of norm_epsilon, rope_theta, rope_scaling; Llama-3.1-8B has its own"),
    ],
)
def test_shapes_that_trlx_would_build_otherwise_are_refused(backend: str, size: str, reason: str | None) -> None:
    driver, measure = find_backend(backend), Measure(device="cuda", precision="bf16")
    errors = driver.errors(find_size(size), find_workload("cpu"), Layout(devices_per_node=1, data=1), measure)
    assert errors == [] if reason is None else reason in " ".join(errors)
