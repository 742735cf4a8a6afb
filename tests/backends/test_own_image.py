"""Backends that run in images of their own: what they refuse before a run, and that they say they were never run."""

from __future__ import annotations

from typing import Any

import pytest

from suite.backends.base import experimental
from suite.backends.registry import find_backend
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from tests.synthetic import GPT, LLAMA

NAMES = ("nemo-rl", "skyrl", "areal")
CUDA = Measure(device="cuda", precision="bf16")
GRPO: dict[str, Any] = {
    "name": "grpo",
    "prompt_tokens": 8,
    "new_tokens": 8,
    "rollouts": 8,
    "micro_batch": 2,
    "algorithm": "grpo",
    "group": 2,
}


def errors(
    name: str, size: Shape = LLAMA, measure: Measure = CUDA, layout: dict[str, Any] | None = None, **work: Any
) -> list[str]:
    driver = find_backend(name)
    chosen = Layout(**{"devices_per_node": 2, "data": 2, **(layout or {})})
    return driver.errors(size, Workload.model_validate({**GRPO, **work}), chosen, measure)


@pytest.mark.parametrize("name", NAMES)
class TestEach:
    def test_it_says_that_it_was_never_run(self, name: str) -> None:
        assert experimental(find_backend(name)) == "never run"

    def test_grpo_on_a_llama_is_taken(self, name: str) -> None:
        assert errors(name) == []

    def test_its_layout_is_sharded_and_generates_by_vllm(self, name: str) -> None:
        layout = find_backend(name).layout(LLAMA, Workload.model_validate(GRPO), LayoutRequest(devices_per_node=2))

        assert (layout.engine, layout.zero_stage, layout.generation, layout.data) == ("fsdp2", 3, "vllm", 2)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"algorithm": "ppo", "group": 1}, "--algorithm grpo"),
            ({"ppo_epochs": 2}, "once, not 2 times"),
            ({"trainable_layers": 1}, "leave out --trainable-layers"),
            ({"trainable_layers": 1, "reference": "hydra"}, "--reference full"),
            ({"reward": {"kind": "token-below", "threshold": 5}}, "not token-below"),
            ({"optimizer_steps": 3}, "8 prompts do not divide into 3 optimizer steps"),
            ({"size": GPT}, "is of the gpt2 family"),
            ({"measure": Measure(device="cpu", precision="fp32")}, "use --device cuda"),
            ({"measure": Measure(device="cuda", precision="fp32")}, "use --precision bf16"),
            ({"layout": {"nodes": 2, "devices_per_node": 1}}, "use --nodes 1"),
            ({"layout": {"tensor": 2, "data": 1}}, "must be 1"),
        ],
    )
    def test_what_is_not_mapped_is_refused_with_what_to_do(self, name: str, change: dict[str, Any], told: str) -> None:
        assert any(told in error for error in errors(name, **change))

    def test_another_version_is_refused(self, name: str) -> None:
        driver: Any = find_backend(name)
        workload = Workload.model_validate(GRPO)

        for version in (driver.version, f"{driver.version}+0a1b2c3"):
            assert driver.versions_errors(workload, {driver.package: version}) == []
        assert "and finds 9.9" in driver.versions_errors(workload, {driver.package: "9.9"})[0]


def test_skyrl_takes_no_qwen_whose_tokenizer_takes_numbers_apart() -> None:
    qwen = LLAMA.model_copy(update={"architecture": "qwen2"})

    assert errors("areal", qwen) == errors("nemo-rl", qwen) == []
    assert "of the qwen2 family" in errors("skyrl", qwen)[0]
