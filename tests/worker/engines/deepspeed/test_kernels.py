"""The manifest in DeepSpeed's own words, whose Adam it runs, and which of its steps fp16 skips."""

from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch

from suite.worker.deepspeed_json import training_config
from suite.worker.engines.deepspeed import optimizer
from suite.worker.engines.deepspeed.engine import DeepSpeedEngine
from suite.worker.samples import Samples
from tests.worker.tiny import tiny_body


def read_part(kernels: str = "native", offloads: bool = False, device: str = "cpu") -> dict[str, Any]:
    layout = {"kernels": kernels, "offload_optimizer": offloads, "zero_stage": 2}
    return tiny_body(layout=layout, measure={"device": device}, workload={"optimizer": {"weight_decay": 0.1}})


class ScriptedBuilder:
    """An operator of DeepSpeed that loads, or does not."""

    def __init__(self, name: str, loaded: list[str], error: Exception | None = None) -> None:
        self.name, self._loaded, self._error = name, loaded, error

    def load(self, verbose: bool) -> None:
        self._loaded.append(self.name)
        if self._error:
            raise self._error


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that are loaded; all are, none is built, everything to compile them is there."""
    names: list[str] = []
    builders = {"CPUAdamBuilder": "cpu_adam", "FusedAdamBuilder": "fused_adam"}
    accelerator = type(optimizer.get_accelerator())
    monkeypatch.setattr(accelerator, "create_op_builder", lambda _, each: ScriptedBuilder(builders[each], names))
    monkeypatch.setattr("torch.utils.cpp_extension.is_ninja_available", lambda: True)
    monkeypatch.setattr("torch.utils.cpp_extension.CUDA_HOME", None)
    monkeypatch.setattr(optimizer.shutil, "which", lambda _: "/usr/bin/c++")
    return names


def test_native_kernels_are_the_hosts_where_the_optimizer_is_offloaded_and_the_devices_elsewhere(loaded):
    (note,) = optimizer.load_kernels(read_part(offloads=True))
    assert loaded == ["cpu_adam"] and "DeepSpeedCPUAdam" in note
    (note,) = optimizer.load_kernels(read_part())
    assert loaded == ["cpu_adam", "fused_adam"] and "FusedAdam" in note


def test_torch_kernels_load_nothing_and_say_whose_they_are(loaded: list[str]) -> None:
    notes = optimizer.load_kernels(read_part("torch", offloads=True))
    assert loaded == []
    assert "torch.optim.AdamW" in notes[0] and "not DeepSpeedCPUAdam" in notes[1]


def refuse(manifest: dict[str, Any]) -> str:
    with pytest.raises(ValueError, match="kernels native") as refused:
        optimizer.load_kernels(manifest)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_kernels_that_are_neither_built_nor_can_be_are_refused_with_what_is_missing(loaded, monkeypatch):
    assert "no nvcc" in refuse(read_part(device="cuda"))
    optimizer.load_kernels(read_part(device="cuda", offloads=True))  # runs on the host: a C++ compiler is enough
    monkeypatch.setattr(optimizer.shutil, "which", lambda _: None)
    assert "no C++ compiler" in refuse(read_part())
    monkeypatch.setattr("torch.utils.cpp_extension.is_ninja_available", lambda: False)
    assert "no ninja" in refuse(read_part()) and "DS_BUILD_FUSED_ADAM=1" in refuse(read_part())
    assert loaded == ["cpu_adam"]


def test_kernels_that_were_built_with_deepspeed_need_no_compiler(loaded, monkeypatch):
    monkeypatch.setattr(optimizer.shutil, "which", lambda _: None)
    monkeypatch.setattr(optimizer, "installed_ops", {"fused_adam": True})
    monkeypatch.setattr(optimizer, "accelerator_name", optimizer.get_accelerator().device_name())
    (note,) = optimizer.load_kernels(read_part())
    assert loaded == ["fused_adam"] and "built with DeepSpeed" in note
    monkeypatch.setattr(optimizer, "accelerator_name", "another")  # DeepSpeed does not take those either
    refuse(read_part())


def test_a_compilation_that_fails_is_one_line(loaded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ScriptedBuilder("fused_adam", loaded, RuntimeError("many\nlines"))
    monkeypatch.setattr(type(optimizer.get_accelerator()), "create_op_builder", lambda _, each: broken)
    assert "does not load" in refuse(read_part())


def test_every_adam_gets_the_workloads_coefficients_and_decouples_weight_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, dict[str, Any]]] = []
    for name in ("FusedAdam", "DeepSpeedCPUAdam"):
        monkeypatch.setattr(optimizer, name, lambda _, name=name, **options: made.append((name, options)))
    parameters = [torch.nn.Parameter(torch.zeros(2))]
    plain = optimizer.build_optimizer(read_part("torch"), parameters)
    assert type(plain) is torch.optim.AdamW
    asked = read_part()["workload"]["optimizer"]
    betas = (asked["beta1"], asked["beta2"])
    wanted = {"lr": asked["learning_rate"], "betas": betas, "eps": asked["epsilon"], "weight_decay": 0.1}
    assert {name: plain.defaults[name] for name in wanted} == wanted and plain.defaults["fused"]
    optimizer.build_optimizer(read_part(), parameters)
    optimizer.build_optimizer(read_part(offloads=True), parameters)
    assert made == [
        ("FusedAdam", {**wanted, "adam_w_mode": True}),
        ("DeepSpeedCPUAdam", {**wanted, "adamw_mode": True}),
    ]


def config_of(device: str, data: int, stage: int, parameters: int = 1000, **layout: int) -> dict[str, Any]:
    measure, workload = {"device": device, "precision": "bf16"}, {"rollouts": 8}
    manifest = tiny_body(data, layout={"zero_stage": stage, **layout}, measure=measure, workload=workload)
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
    asked = [config_of("cuda", 1, 2, size, bucket_elements=5000) for size in (1000, 10**10)]
    assert [config["zero_optimization"]["reduce_bucket_size"] for config in asked] == [1000, 5000]


def scripted_model(skips: list[bool], output: Any) -> mock.Mock:
    """What ``deepspeed.initialize`` returns, as far as training touches it; step n is skipped or it is not."""
    model = mock.Mock(return_value=output, global_steps=0, skipped_steps=0)
    model.get_global_grad_norm.return_value = None

    def step() -> None:
        model.skipped_steps += skips[model.global_steps]
        model.global_steps += 1

    model.step = step
    return model


def counted(policy: list[bool], critic: list[bool] | None) -> list[float]:
    """``skipped_steps`` of each train call, one micro batch each."""
    engine, response = DeepSpeedEngine.__new__(DeepSpeedEngine), torch.zeros(2, 2)
    engine._policy, engine._micro_batch = SimpleNamespace(train=lambda: None), 2
    engine._engine = scripted_model(policy, (response, response))
    engine._packs = False
    engine._critic = None if critic is None else scripted_model(critic, response)
    samples, batch = Samples.even(torch.zeros(2, 4), 2), {"logprobs": response, "values": response}
    parts = dict.fromkeys(("loss", "policy_loss", "value_loss"), torch.zeros(()))
    return [engine.train(samples, batch, lambda *_: (torch.zeros(()), parts))["skipped_steps"] for _ in policy]


@pytest.mark.parametrize(
    ("policy", "critic", "skipped"),
    [
        ([True, False, True], None, [1.0, 0.0, 1.0]),
        ([False, False], [False, True], [0.0, 1.0]),
        ([False, True], [False, True], [0.0, 1.0]),
    ],
    ids=["no critic", "critic alone", "both at once are one step"],
)
def test_a_step_is_counted_where_it_was_skipped(policy, critic, skipped):
    assert counted(policy, critic) == skipped
