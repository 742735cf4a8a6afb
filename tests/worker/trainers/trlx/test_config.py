"""The manifest in trlx's words, for every size and layout; nothing of trlx is imported."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from suite.backends.base import choice
from suite.backends.registry import find_backend
from suite.spec.catalogue import find_size, find_workload, sizes
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Limits, Manifest, Measure
from suite.spec.resolve import layout_errors, make_manifest
from suite.spec.workload import Workload
from suite.worker.loop import expected_counts
from suite.worker.trainers.trlx import config as trlx_config
from suite.worker.trainers.trlx.work import notes, work_differences

CPU = Measure(device="cpu", precision="fp32")
CUDA = Measure(device="cuda", precision="bf16")


def parsed(manifest: Manifest) -> dict[str, Any]:
    return json.loads(manifest.model_dump_json(by_alias=True))


def manifest_of(
    backend: str, size: str, workload: Workload, request: LayoutRequest, measure: Measure = CUDA
) -> dict[str, Any]:
    driver, shape = find_backend(backend), find_size(size)
    layout = driver.layout(shape, workload, request)
    made = make_manifest(
        plan="plan",
        repeat=1,
        backend=choice(driver),
        size=shape,
        workload=workload,
        layout=layout,
        measure=measure,
        limits=Limits(),
        stack={},
    )
    return parsed(made)


def config_of(manifest: dict[str, Any], iterations: int = 10) -> dict[str, Any]:
    return trlx_config.trlx_config(manifest, iterations, "tokenizer", [7, 8, 9], "Trainer")


WORKLOADS = st.builds(
    lambda prompt, new, rollouts, steps, epochs, micro, layers, hydra, scaling: Workload(
        name="any",
        prompt_tokens=prompt,
        new_tokens=new,
        rollouts=rollouts * steps,
        optimizer_steps=steps,
        ppo_epochs=epochs,
        micro_batch=micro,
        trainable_layers=layers,
        reference="hydra" if hydra and layers else "full",
        scaling=scaling,
    ),
    *(st.integers(1, 60), st.integers(1, 60), st.integers(1, 12), st.integers(1, 4), st.integers(1, 4)),
    *(st.integers(1, 16), st.none() | st.integers(0, 2), st.booleans(), st.sampled_from(["weak", "strong"])),
)
REQUESTS = st.builds(
    lambda nodes, devices, stage, optimizer, parameters: LayoutRequest(
        nodes=nodes,
        devices_per_node=devices,
        zero_stage=3 if parameters else max(stage, int(optimizer)),
        offload_optimizer=optimizer,
        offload_parameters=parameters,
    ),
    *(st.integers(1, 4), st.sampled_from([1, 2, 4, 8]), st.integers(0, 3), st.booleans(), st.booleans()),
)


@given(
    size=st.sampled_from(sorted(sizes())),
    backend=st.sampled_from(["trlx-deepspeed", "trlx-ddp"]),
    workload=WORKLOADS,
    request=REQUESTS,
)
def test_every_size_and_layout_asks_trlx_for_the_manifests_work(
    size: str, backend: str, workload: Workload, request: LayoutRequest
) -> None:
    driver, shape = find_backend(backend), find_size(size)
    layout = driver.layout(shape, workload, request)
    if layout_errors(shape, workload, layout) + driver.errors(shape, workload, layout, CUDA):
        return
    manifest = manifest_of(backend, size, workload, request)
    trlx_config.check(manifest)
    config, ranks, iterations = config_of(manifest, 10), layout.ranks, 10
    train, method, generation = config["train"], config["method"], config["method"]["gen_kwargs"]
    expected = expected_counts(manifest["workload"], manifest["work"])
    assert method["num_rollouts"] * ranks == expected["samples"]
    assert method["num_rollouts"] == method["chunk_size"], "one generation of all that a rank has"
    assert method["num_rollouts"] % train["batch_size"] == 0
    steps = method["num_rollouts"] // train["batch_size"] * method["ppo_epochs"]
    assert steps == expected["optimizer_steps"]
    assert train["total_steps"] == steps * iterations
    assert train["batch_size"] % train["minibatch_size"] == 0
    assert train["minibatch_size"] <= workload.micro_batch
    assert generation["min_new_tokens"] == generation["max_new_tokens"] == workload.new_tokens
    assert train["seq_length"] - generation["max_new_tokens"] == workload.prompt_tokens
    assert not any(isinstance(value, list) for value in generation.values()), "a list is a sweep of evaluations"
    assert config["model"]["num_layers_unfrozen"] == (
        -1 if workload.trainable_layers is None else workload.trainable_layers
    )


@given(workload=WORKLOADS, request=REQUESTS, precision=st.sampled_from(["fp32", "bf16", "fp16"]))
def test_deepspeed_accumulates_the_batch_and_shards_as_asked(
    workload: Workload, request: LayoutRequest, precision: str
) -> None:
    measure = Measure.model_validate({"device": "cuda", "precision": precision})
    driver, shape = find_backend("trlx-deepspeed"), find_size("1.3B")
    layout = driver.layout(shape, workload, request)
    if layout_errors(shape, workload, layout) + driver.errors(shape, workload, layout, measure):
        return
    manifest = manifest_of("trlx-deepspeed", "1.3B", workload, request, measure)
    config = trlx_config.deepspeed_config(manifest)
    batch = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
    assert batch == manifest["work"]["replica_batch"]
    zero = config["zero_optimization"]
    assert zero["stage"] == layout.zero_stage
    assert ("offload_optimizer" in zero, "offload_param" in zero) == (
        layout.offload_optimizer,
        layout.offload_parameters,
    )
    assert (config["bf16"]["enabled"], "fp16" in config) == (precision == "bf16", precision == "fp16")
    variables = trlx_config.accelerate_variables(manifest, "deepspeed.json")
    assert variables["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == str(config["gradient_accumulation_steps"])
    assert variables["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == str(layout.zero_stage)
    assert "ACCELERATE_USE_CPU" not in variables, "it would drop DeepSpeed without a word"


def test_ddp_is_told_of_the_cpu_and_never_of_deepspeed() -> None:
    request = LayoutRequest(devices_per_node=2)
    on_cpu = manifest_of("trlx-ddp", "1M", find_workload("cpu"), request, CPU)
    on_gpu = manifest_of("trlx-ddp", "1.3B", find_workload("gpu-one"), request, CUDA)
    assert trlx_config.accelerate_variables(on_cpu, "x") == {
        "ACCELERATE_MIXED_PRECISION": "no",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "1",
        "ACCELERATE_USE_CPU": "true",
    }
    assert trlx_config.accelerate_variables(on_gpu, "x") == {
        "ACCELERATE_MIXED_PRECISION": "bf16",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4",
    }


@pytest.mark.parametrize(("size", "stage"), [("1.3B", None), ("66B", None), ("8M", 0)])
def test_the_configuration_reads_as_saved(size: str, stage: int | None, snapshot: SnapshotAssertion) -> None:
    workload = find_workload("trlx-ds-chat" if size != "8M" else "cpu")
    request = LayoutRequest(devices_per_node=8 if size != "8M" else 2, zero_stage=stage)
    manifest = manifest_of("trlx-deepspeed", size, workload, request, CUDA if size != "8M" else CPU)
    assert config_of(manifest) == snapshot(name="trlx")
    assert trlx_config.deepspeed_config(manifest) == snapshot(name="deepspeed")
    assert trlx_config.accelerate_variables(manifest, "deepspeed.json") == snapshot(name="variables")


@pytest.mark.parametrize(
    ("section", "change", "words"),
    [
        ("layout", {"tensor": 2}, "data parallel only: tensor 2"),
        ("layout", {"sequence_parallel": True}, "megatron"),
        ("layout", {"recompute": "full"}, "no switch for recomputation"),
        ("size", {"kv_heads": 1}, "no grouped queries"),
        ("workload", {"reference": "hydra", "trainable_layers": 0}, "below the trainable layers"),
        ("measure", {"precision": "fp16"}, "not trained on a CPU"),
    ],
)
def test_what_trlx_cannot_do_is_refused_with_its_value(section: str, change: dict[str, Any], words: str) -> None:
    manifest = manifest_of("trlx-deepspeed", "1M", find_workload("cpu"), LayoutRequest(devices_per_node=1), CPU)
    manifest[section].update(change)
    with pytest.raises(ValueError, match=words):
        trlx_config.check(manifest)


def test_ddp_refuses_a_zero_stage() -> None:
    manifest = manifest_of("trlx-ddp", "1M", find_workload("cpu"), LayoutRequest(devices_per_node=1), CPU)
    manifest["layout"]["zero_stage"] = 1
    with pytest.raises(ValueError, match="ZeRO stage 1 belongs to trlx-deepspeed"):
        trlx_config.check(manifest)


class TestWorkDifferences:
    def told(self, backend: str, layout: dict[str, Any] | None = None, precision: str = "fp32", **work: Any) -> str:
        shape = find_size("1M")
        body = {**find_workload("cpu").model_dump(), **work}
        manifest = parsed(
            make_manifest(
                plan="plan",
                repeat=1,
                backend=choice(find_backend(backend)),
                size=shape,
                workload=Workload.model_validate(body),
                layout=Layout(devices_per_node=2, data=2, **(layout or {})),
                measure=Measure.model_validate({"device": "cpu", "precision": precision}),
                limits=Limits(),
                stack={},
            )
        )
        return "\n".join([*work_differences(manifest), *notes(manifest, "eager")])

    def test_what_differs_always_is_always_told(self) -> None:
        for backend in ("trlx-deepspeed", "trlx-ddp"):
            told = self.told(backend)
            for words in (
                "prompt positions too",
                "tokenised again",
                "whitened in each micro batch",
                "torch.compile is off",
            ):
                assert words in told

    def test_one_scoring_pass_is_a_difference_only_where_the_suite_takes_more(self) -> None:
        assert "scored in one pass" not in self.told("trlx-deepspeed", micro_batch=4)
        assert "4 rollouts are scored in one pass, not in micro batches of 2" in self.told(
            "trlx-deepspeed", micro_batch=2
        )

    def test_the_reference_that_runs_is_told(self) -> None:
        hydra = {"reference": "hydra", "trainable_layers": 1}
        assert "runs the whole policy once more" in self.told("trlx-deepspeed", **hydra)
        assert "full copy, not hydra" in self.told("trlx-ddp", **hydra)
        assert "whole on every rank" in self.told("trlx-deepspeed", {"zero_stage": 3})

    def test_what_trains_beside_the_last_layers_is_told(self) -> None:
        assert "position embeddings train" in self.told("trlx-deepspeed", trainable_layers=1)
        assert "position embeddings train" not in self.told("trlx-deepspeed")

    def test_ddp_tells_that_it_neither_clips_nor_trains_in_low_precision(self) -> None:
        assert "not clipped" in self.told("trlx-ddp")
        assert "stay in fp32" in self.told("trlx-ddp", precision="bf16")
        assert "not clipped" not in self.told("trlx-deepspeed")
