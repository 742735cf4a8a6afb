"""The manifest in DeepSpeed's own words."""

from typing import Any

import pytest

from suite.worker.deepspeed_json import training_config
from tests.worker.tiny import tiny_body


def config_of(device: str, data: int, stage: int, parameters: int = 1000) -> dict[str, Any]:
    measure, workload = {"device": device, "precision": "bf16"}, {"rollouts": 8}
    manifest = tiny_body(data, layout={"zero_stage": stage}, measure=measure, workload=workload)
    return training_config(manifest, parameters)


@pytest.mark.parametrize(
    ("device", "data", "stage", "overlaps"),
    [("cuda", 2, 1, True), ("cuda", 2, 2, True), ("cuda", 1, 2, False), ("cuda", 2, 0, False), ("cpu", 2, 2, False)],
)
def test_gradients_are_reduced_during_backward_where_megatron_does_it_too(device, data, stage, overlaps):
    zero = config_of(device, data, stage)["zero_optimization"]
    assert zero.get("overlap_comm", False) is overlaps


def test_one_train_call_is_one_optimizer_step_and_the_bucket_is_no_larger_than_the_model() -> None:
    config = config_of("cuda", 1, 2)
    assert config["gradient_accumulation_steps"] == 4
    assert config["zero_optimization"]["reduce_bucket_size"] == 1000
    assert config_of("cuda", 1, 2, 10**10)["zero_optimization"]["reduce_bucket_size"] == 500_000_000
