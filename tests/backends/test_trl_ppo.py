"""The driver of TRL's PPO: what is chosen, and what is refused before a run."""

from __future__ import annotations

from typing import Any

import pytest

from suite.backends.base import unknown_work, versions_errors
from suite.backends.registry import backends, find_backend
from suite.backends.trl_ppo import VERSION, TrlPpo
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.presets import find_preset
from suite.spec.resolve import layout_errors
from suite.worker.trainers.trl_ppo import config

DRIVER = TrlPpo()
SIZE, WORK = find_size("1M"), find_workload("smoke")


def layout(**asked: Any) -> Layout:
    return DRIVER.layout(SIZE, WORK, LayoutRequest(devices_per_node=2, **asked))


def errors(size: str = "1M", precision: Any = "fp32", **changes: Any) -> str:
    measure = Measure(device="cpu", precision=precision, warmup=1, iterations=1)
    return "; ".join(DRIVER.errors(find_size(size), WORK.changed(changes), layout(), measure))


def test_driver_and_worker_mean_the_same_release() -> None:
    assert VERSION == config.VERSION


def test_it_trains_under_zero_2_unless_another_engine_or_stage_is_asked_for() -> None:
    assert layout().label() == "zero2 dp2"
    assert layout(engine="ddp").label() == "ddp dp2"
    assert layout(zero_stage=3).label() == "zero3 dp2 gather-gen", "as TRL does by default"
    assert layout(zero_stage=3, gather_for_generation=False).label() == "zero3 dp2"


@pytest.mark.parametrize(
    "asked", [{"engine": "fsdp2"}, {"engine": "ddp", "zero_stage": 2}, {"engine": "ddp", "offload_optimizer": True}]
)
def test_what_an_engine_does_not_have_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"deepspeed or ddp|DeepSpeed's"):
        layout(**asked)


def test_what_it_cannot_do_is_told_before_the_run() -> None:
    assert not errors()
    assert "1M-moe is of the qwen3_moe family" in errors("1M-moe")
    assert "no hydra reference" in errors(reference="hydra", trainable_layers=1)
    assert "trains every layer" in errors(trainable_layers=1)
    assert "fp16 is untested" in errors(precision="fp16")
    assert "algorithm grpo" in unknown_work(DRIVER, find_workload("cpu-grpo"))[0]
    assert not unknown_work(DRIVER, find_workload("ds-chat-step3")), "its critic is the value model"


@pytest.mark.parametrize("preset", ["trainers-ppo", "trainers-ppo-critic", "trainers-ppo-1.3b"])
def test_every_backend_of_the_comparison_can_do_its_work(preset: str) -> None:
    found = find_preset(preset)
    (point,) = found.points
    size, work, device = find_size(point.size), found.work_of(point), "cuda" if found.precision == "bf16" else "cpu"
    for name in set(found.backends).intersection(backends()):
        driver = find_backend(name)
        asked = LayoutRequest(devices_per_node=point.devices_per_node)
        measure = Measure(device=device, precision=found.precision, warmup=1, iterations=1)
        made = driver.layout(size, work, asked)
        assert (
            not driver.errors(size, work, made, measure) + unknown_work(driver, work) + layout_errors(size, work, made)
        )


def test_another_release_is_told_with_what_to_do() -> None:
    found = versions_errors(DRIVER, WORK, layout(), {"trl": "1.16.0"})
    assert found == [
        "trl-ppo measures trl 1.12.0, the last release with a PPO trainer, and finds 1.16.0: `make trl-ppo`"
    ]
    assert not versions_errors(DRIVER, WORK, layout(), {"trl": VERSION})
