"""The manifest in DeepSpeed's own words."""

from __future__ import annotations

from typing import Any

import pytest

from suite.worker.engines.deepspeed.config import training_config


def read_part(device: str, data: int, stage: int) -> dict[str, Any]:
    """The part of a manifest that the configuration reads."""
    return {
        "layout": {"data": data, "zero_stage": stage, "offload_optimizer": False, "offload_parameters": False},
        "work": {"replica_batch": 8, "micro_batch": 2},
        "workload": {"optimizer": {"gradient_clip": 1.0}},
        "measure": {"device": device, "precision": "bf16"},
    }


@pytest.mark.parametrize(
    ("device", "data", "stage", "overlaps"),
    [("cuda", 2, 1, True), ("cuda", 2, 2, True), ("cuda", 1, 2, False), ("cuda", 2, 0, False), ("cpu", 2, 2, False)],
)
def test_gradients_are_reduced_during_backward_where_megatron_does_it_too(
    device: str, data: int, stage: int, overlaps: bool
) -> None:
    zero = training_config(read_part(device, data, stage), 1000)["zero_optimization"]
    assert zero.get("overlap_comm", False) is overlaps


def test_one_train_call_is_one_optimizer_step_and_the_bucket_is_no_larger_than_the_model() -> None:
    config = training_config(read_part("cuda", 1, 2), 1000)
    assert config["gradient_accumulation_steps"] == 4
    assert config["zero_optimization"]["reduce_bucket_size"] == 1000
    assert training_config(read_part("cuda", 1, 2), 10**10)["zero_optimization"]["reduce_bucket_size"] == 500_000_000
