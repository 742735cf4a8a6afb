"""A model that a backend cannot build is refused with what measures it instead."""

from __future__ import annotations

import pytest

from suite.backends.base import LayoutRequest
from suite.backends.registry import find_backend
from suite.spec.catalogue import find_workload
from suite.spec.manifest import Measure
from suite.spec.shape import Shape

OPT = Shape(
    name="mine", architecture="opt", layers=2, hidden=64, ffn=256, heads=4, kv_heads=4, vocab=256, positions=2048
)
CPU = Measure(device="cpu", precision="fp32", warmup=1, iterations=1)


@pytest.mark.parametrize("name", ["deepspeed", "megatron"])
def test_an_engine_names_the_backend_that_builds_the_family_and_that_one_takes_it(name: str) -> None:
    workload = find_workload("cpu")
    driver = find_backend(name)
    errors = driver.errors(OPT, workload, driver.layout(OPT, workload, LayoutRequest(devices_per_node=1)), CPU)
    (error,) = [error for error in errors if "family" in error]
    assert "--backend trlx-deepspeed" in error and "suite plan --shape" in error
    trlx = find_backend("trlx-deepspeed")
    assert not trlx.errors(OPT, workload, trlx.layout(OPT, workload, LayoutRequest(devices_per_node=1)), CPU)
