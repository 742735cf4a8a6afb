"""The manifest in trlx's words, for every size and layout, its model, and which trlx would be imported: none is."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from suite.backends.registry import find_backend
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.resolve import layout_errors
from suite.spec.workload import Workload
from suite.theory.parameters import parameter_count
from suite.worker.asked import expected_counts
from suite.worker.deepspeed_json import training_json
from suite.worker.rank import ConfigError
from suite.worker.trainers import drawn_model
from suite.worker.trainers.on_accelerate import accelerate_variables
from suite.worker.trainers.trlx import config as trlx_config
from suite.worker.trainers.trlx import source as trlx_source
from suite.worker.trainers.trlx.accelerate.trainer import build_model, notes, work_differences
from tests.worker.trainers.runs import CPU, CUDA, as_read, tiny_shape, trainer_manifest
from tests.worker.written import write


def trlx_body(
    backend: str,
    size: str = "1M",
    workload: Workload | None = None,
    layout: LayoutRequest | Layout | None = None,
    measure: Measure = CPU,
) -> dict[str, Any]:
    """As a rank reads it."""
    work, asked = workload or find_workload("cpu"), layout or LayoutRequest(devices_per_node=1)
    return as_read(trainer_manifest(backend, find_size(size), work, asked, measure))


@pytest.mark.parametrize(
    ("size", "backend", "work", "request_", "precision"),
    [
        ("1M", "trlx-ddp", {"rollouts": 6, "micro_batch": 4, "ppo_epochs": 3}, {"devices_per_node": 2}, "fp32"),
        ("1.3B", "trlx-deepspeed", {"reference": "hydra", "trainable_layers": 2}, {"devices_per_node": 1}, "bf16"),
        (
            "13B",
            "trlx-deepspeed",
            {"rollouts": 32, "optimizer_steps": 4, "ppo_epochs": 2, "scaling": "strong"},
            {"devices_per_node": 4, "zero_stage": 2, "offload_optimizer": True},
            "fp16",
        ),
        (
            "66B",
            "trlx-deepspeed",
            {"rollouts": 12, "optimizer_steps": 3, "micro_batch": 2, "prompt_tokens": 60},
            {"nodes": 4, "devices_per_node": 8, "zero_stage": 3, "offload_parameters": True},
            "bf16",
        ),
    ],
)
def test_trlx_and_deepspeed_are_asked_for_the_manifests_work(size, backend, work, request_, precision):
    workload, request = find_workload("cpu").changed(work), LayoutRequest(**request_)
    driver, shape, measure = find_backend(backend), find_size(size), CUDA.model_copy(update={"precision": precision})
    layout = driver.layout(shape, workload, request)
    assert not layout_errors(shape, workload, layout) + driver.errors(shape, workload, layout, measure)
    manifest = trlx_body(backend, size, workload, layout, measure)
    config = trlx_config.trlx_config(manifest, 10, "tokenizer", [7, 8, 9])
    train, method, generation = config["train"], config["method"], config["method"]["gen_kwargs"]
    expected = expected_counts(manifest["workload"], manifest["work"])
    assert method["num_rollouts"] * request.nodes * request.devices_per_node == expected["samples"]
    assert method["num_rollouts"] == method["chunk_size"], "one generation of all that a rank has"
    assert method["num_rollouts"] % train["batch_size"] == 0
    steps = method["num_rollouts"] // train["batch_size"] * method["ppo_epochs"]
    assert (steps, train["total_steps"]) == (expected["optimizer_steps"], steps * 10)
    assert train["batch_size"] % train["minibatch_size"] == 0
    assert train["minibatch_size"] <= workload.micro_batch
    assert generation["min_new_tokens"] == generation["max_new_tokens"] == workload.new_tokens
    assert train["seq_length"] - generation["max_new_tokens"] == workload.prompt_tokens
    assert not any(isinstance(value, list) for value in generation.values()), "a list is a sweep of evaluations"
    assert generation["suppress_tokens"] == (7, 8, 9), "special tokens, which decoding drops"
    optimizer, rate = config["optimizer"]["kwargs"], workload.optimizer.learning_rate
    assert optimizer["lr"] == config["scheduler"]["kwargs"]["eta_min"] == rate, "it does not fall"
    trainable = workload.trainable_layers
    assert config["model"]["num_layers_unfrozen"] == (-1 if trainable is None else trainable)
    if backend == "trlx-deepspeed":
        check_deepspeed(manifest, layout, precision)


def check_deepspeed(manifest: dict[str, Any], layout: Layout, precision: str) -> None:
    """It accumulates the batch and shards as asked."""
    config = training_json(manifest)
    accumulated = config["gradient_accumulation_steps"]
    assert config["train_micro_batch_size_per_gpu"] * accumulated == manifest["work"]["replica_batch"]
    zero = config["zero_optimization"]
    offloads = (layout.offload_optimizer, layout.offload_parameters)
    assert (zero["stage"], "offload_optimizer" in zero, "offload_param" in zero) == (layout.zero_stage, *offloads)
    assert (config["bf16"]["enabled"], "fp16" in config) == (precision == "bf16", precision == "fp16")
    variables = accelerate_variables(manifest, "deepspeed.json")
    assert variables["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == str(accumulated)
    assert variables["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == str(layout.zero_stage)
    assert "ACCELERATE_USE_CPU" not in variables, "it would drop DeepSpeed without a word"


def test_ddp_is_told_of_the_cpu_and_never_of_deepspeed() -> None:
    request = LayoutRequest(devices_per_node=2)
    on_cpu = trlx_body("trlx-ddp", layout=request)
    on_gpu = trlx_body("trlx-ddp", "1.3B", find_workload("gpu-one"), request, CUDA)
    steps = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"
    told = [accelerate_variables(manifest, "unused") for manifest in (on_cpu, on_gpu)]
    assert told[0] == {"ACCELERATE_MIXED_PRECISION": "no", steps: "1", "ACCELERATE_USE_CPU": "true"}
    assert told[1] == {"ACCELERATE_MIXED_PRECISION": "bf16", steps: "4"}


ONE_PASS = "4 rollouts are scored in one pass, not in micro batches of 2"
ALWAYS = ("prompt positions too", "tokenised again", "whitened in each micro batch", "torch.compile is off")
HYDRA = {"reference": "hydra", "trainable_layers": 1}


@pytest.mark.parametrize(
    ("backend", "work", "changes", "told", "untold"),
    [
        ("trlx-deepspeed", {"micro_batch": 4}, {}, ALWAYS, ("in one pass", "position embeddings", "not clipped")),
        ("trlx-deepspeed", {"micro_batch": 2}, {}, (ONE_PASS,), ()),
        ("trlx-deepspeed", HYDRA, {}, ("runs the whole policy once more", "position embeddings train"), ()),
        ("trlx-deepspeed", {}, {"layout": {"zero_stage": 3}}, ("whole on every rank",), ()),
        ("trlx-ddp", HYDRA, {}, ("full copy, not hydra",), ()),
        ("trlx-ddp", {}, {"measure": {"precision": "bf16"}}, (*ALWAYS, "not clipped", "stay in fp32"), ()),
    ],
)
def test_where_the_work_differs_from_the_suites_it_is_told(backend, work, changes, told, untold):
    layout = Layout(devices_per_node=2, data=2)
    manifest = trlx_body(backend, workload=find_workload("cpu").changed(work), layout=layout)
    for section, change in changes.items():
        manifest[section].update(change)
    found = "\n".join([*work_differences(manifest), *notes(manifest, "eager")])
    assert all(words in found for words in told) and not any(words in found for words in untold)


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama"])
def test_a_model_has_the_shapes_parameters(family: str) -> None:
    shape = tiny_shape(family)
    model = build_model(shape.model_dump(mode="json"))
    assert sum(parameter.numel() for parameter in model.parameters()) == parameter_count(shape).total
    assert model.config.architectures == [type(model).__name__] and not model.training


def test_grouped_queries_are_never_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 4.31 a configuration takes whatever it is given, and has no field for key-value heads."""
    monkeypatch.setattr(drawn_model.AutoConfig, "for_model", lambda _, **fields: SimpleNamespace(**fields))
    grouped = tiny_shape("llama").model_dump(mode="json")
    with pytest.raises(ConfigError, match=r"no grouped queries, which tiny-llama has; install 4"):
        build_model(grouped)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package called trlx that is none, named as the source."""
    monkeypatch.setenv(trlx_source.SOURCE_VARIABLE, str(tmp_path))
    return write(tmp_path, {"trlx/__init__.py": "from trlx import nothing\n", "trlx/trainer/__init__.py": ""})


def test_the_measured_commit_is_found_in_front_of_the_path_and_another_is_named_with_what_to_do(checkout, monkeypatch):
    told = f"the trlx in {checkout / 'trlx'} is not commit 3340c2f3, or its files were changed; install"
    assert told in str(trlx_source.trlx_problem())
    with pytest.raises(ConfigError, match="not commit 3340c2f3"):
        trlx_source.use_trlx()
    monkeypatch.setattr(trlx_source, "DIGEST", trlx_source.package_digest(str(checkout / "trlx")))
    monkeypatch.setattr(sys, "path", list(sys.path))
    trlx_source.use_trlx()
    assert sys.path[0] == str(checkout)


def test_a_checkout_on_the_path_is_not_taken_for_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"trlx/trlx/__init__.py": ""})
    monkeypatch.delenv(trlx_source.SOURCE_VARIABLE, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert str(trlx_source.trlx_problem()).startswith(f"there is no trlx for {sys.executable}; install")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "trlx")])
    assert str(trlx_source.trlx_problem()).startswith(f"the trlx in {tmp_path}/trlx/trlx is not commit")


@pytest.mark.parametrize("name", ["trlx", "nowhere"])
def test_what_is_not_a_folder_that_holds_the_package_holds_no_trlx(name, checkout, monkeypatch):
    monkeypatch.setenv(trlx_source.SOURCE_VARIABLE, str(checkout / name))
    told = str(trlx_source.trlx_problem())
    assert told.startswith(f"there is no trlx in {checkout / name}; install")
    assert told.endswith(f"name a checkout, which holds it, in {trlx_source.SOURCE_VARIABLE}")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({}, "transformers is missing"),
        ({"transformers": "4.27.4"}, "too old"),
        ({"transformers": "5.23.0"}, None),
        ({"transformers": "5.24.0"}, "5.24.0 is too new for trlx's own code; install"),
    ],
)
def test_versions_that_trlx_does_not_run_on_are_told(found, words, monkeypatch):
    monkeypatch.setattr(trlx_source, "installed_version", found.get)
    told = trlx_source.transformers_problem()
    assert told is None if words is None else words in str(told)
