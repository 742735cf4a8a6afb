"""What the backends around trlx on Accelerate choose, refuse and say, without trlx installed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from suite.backends.base import versions_errors
from suite.backends.registry import find_backend
from suite.backends.trlx import TESTED_TRANSFORMERS, trlx_problems
from suite.conduct.planning.machine import Machine
from suite.spec.base import UsageError
from suite.spec.catalogue import find_size, find_workload
from suite.spec.layout import Layout, LayoutRequest
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.worker.trainers.trlx import source as trlx_source

WORKLOAD = find_workload("trlx-ds-chat")
CPU, CUDA = Measure(device="cpu", precision="fp32"), Measure(device="cuda", precision="bf16")
LLAMA = Shape(
    name="llama", architecture="llama", layers=2, hidden=64, ffn=128, heads=4, kv_heads=2, vocab=512, positions=1024
)


@pytest.mark.parametrize(("size", "stage"), [("1.3B", 2), ("6.7B", 3), ("66B", 3)])
def test_the_stage_is_the_deepspeed_backends_so_that_rows_compare(size: str, stage: int) -> None:
    request = LayoutRequest(devices_per_node=8)
    chosen = [find_backend(name).layout(find_size(size), WORKLOAD, request) for name in ("deepspeed", "trlx-deepspeed")]
    # trlx's own generate always gathers layer by layer
    assert chosen[0].model_copy(update={"gather_for_generation": False}) == chosen[1]
    assert chosen[0].zero_stage == stage


def test_stage_0_is_deepspeeds_engine_and_ddp_is_a_backend_of_its_own() -> None:
    request = LayoutRequest(devices_per_node=2, zero_stage=0)
    assert find_backend("trlx-deepspeed").layout(find_size("1.3B"), WORKLOAD, request).label() == "dp2"
    assert find_backend("trlx-ddp").settings == ()
    assert find_backend("trlx-ddp").layout(find_size("66B"), WORKLOAD, request).label() == "dp2"


@pytest.mark.parametrize("name", ["trlx-deepspeed", "trlx-ddp"])
def test_they_are_trainers_that_start_the_suites_worker(name: str) -> None:
    driver = find_backend(name)
    assert driver.kind == "trainer"
    assert driver.worker_argv("m.json", "bundle") == ("-m", "suite.worker", "m.json", "--bundle", "bundle")
    assert driver.variables(CPU) == {"DS_ACCELERATOR": "cpu"}
    assert driver.variables(CUDA) == {}
    assert {"torch", "transformers", "accelerate", "deepspeed"} <= set(driver.packages)


@pytest.mark.parametrize(
    ("change", "measure", "words"),
    [
        ({"tensor": 2, "data": 1}, CUDA, "data parallel only"),
        ({}, Measure(device="cpu", precision="fp16"), "fp16 is not trained on a CPU"),
    ],
)
def test_what_trlx_cannot_do_is_said(change: dict, measure: Measure, words: str) -> None:
    layout = Layout(**{"devices_per_node": 2, "data": 2, **change})
    (error,) = find_backend("trlx-deepspeed").errors(find_size("1.3B"), WORKLOAD, layout, measure)
    assert words in error


def test_a_branch_needs_a_layer_that_trains() -> None:
    body = {**WORKLOAD.model_dump(), "reference": "hydra", "trainable_layers": 0}
    hydra = WORKLOAD.model_validate(body)
    layout = Layout(devices_per_node=1, data=1)
    (error,) = find_backend("trlx-deepspeed").errors(find_size("1.3B"), hydra, layout, CUDA)
    assert "train at least one layer" in error


@pytest.mark.parametrize(
    ("transformers", "reference", "words"),
    [
        ("4.34.1", "hydra", None),
        ("4.35.0", "hydra", "transformers 4.35.0 is too new for trlx's own model code; install 4.33.3, or ask for"),
        ("4.35.0", "full", None),
        ("5.23.0", "hydra", "ask for --reference full"),
        ("of my own", "hydra", None),
    ],
)
@pytest.mark.parametrize("backend", ["trlx-deepspeed", "trlx-ddp"])
def test_a_transformers_that_breaks_trlxs_branches_is_refused_where_a_branch_is_asked_for(
    backend: str, transformers: str, reference: str, words: str | None
) -> None:
    work = {**WORKLOAD.model_dump(), "reference": reference, "trainable_layers": 2 if reference == "hydra" else None}
    driver, layout = find_backend(backend), Layout(devices_per_node=1, data=1)
    errors = versions_errors(driver, Workload.model_validate(work), layout, {"transformers": transformers})
    assert (errors == []) if words is None else (words in errors[0])


def test_driver_and_worker_advise_the_same_transformers() -> None:
    assert TESTED_TRANSFORMERS == trlx_source.TESTED_TRANSFORMERS


def test_grouped_queries_are_llamas_alone() -> None:
    layout, driver = Layout(devices_per_node=1, data=1), find_backend("trlx-deepspeed")
    assert driver.errors(LLAMA, WORKLOAD, layout, CUDA) == []
    gpt2 = LLAMA.model_copy(update={"architecture": "gpt2"})
    assert "key-value heads" in driver.errors(gpt2, WORKLOAD, layout, CUDA)[0]


def test_a_vocabulary_of_special_tokens_alone_is_refused() -> None:
    layout, driver = Layout(devices_per_node=1, data=1), find_backend("trlx-ddp")
    assert "3 tokens for itself" in driver.errors(LLAMA.model_copy(update={"vocab": 3}), WORKLOAD, layout, CUDA)[0]
    assert driver.errors(LLAMA.model_copy(update={"vocab": 4}), WORKLOAD, layout, CUDA) == []


class TestStack:
    def test_this_interpreter_is_asked_without_importing_trlx(self, tmp_path: Path, monkeypatch) -> None:
        monkeypatch.setenv("SUITE_TRLX_SOURCE", str(tmp_path))
        assert trlx_problems(sys.executable)["trlx"].startswith(f"there is no trlx in {tmp_path}")

    def test_what_drives_deepspeed_concerns_the_backend_on_deepspeed_alone(self, monkeypatch) -> None:
        found = {"trlx": "no trlx", "transformers": None, "engine": "accelerate is too old"}
        monkeypatch.setattr("suite.backends.trlx.trlx_problems", lambda python: found)
        assert find_backend("trlx-deepspeed").stack_errors("python") == ["no trlx", "accelerate is too old"]
        assert find_backend("trlx-ddp").stack_errors("python") == ["no trlx"]

    def test_another_commit_is_refused_in_one_line_before_anything_runs(self, tmp_path: Path, monkeypatch) -> None:
        (tmp_path / "trlx").mkdir()
        (tmp_path / "trlx" / "__init__.py").write_text("")
        monkeypatch.setenv("SUITE_TRLX_SOURCE", str(tmp_path))
        monkeypatch.setattr(
            "suite.conduct.planning.machine.stack_versions", lambda python, packages: dict.fromkeys(packages, "1")
        )
        machine = Machine(python=sys.executable, device="cpu", max_ranks=2, device_memory_bytes=None)
        with pytest.raises(UsageError, match=r"trlx-deepspeed cannot run on the stack of .*is not commit 3340c2f3"):
            machine.stacks(["trlx-deepspeed"])

    @pytest.mark.parametrize(
        ("python", "words"), [("/nowhere/python", "no interpreter"), ("/bin/false", "another interp")]
    )
    def test_what_is_no_interpreter_is_said(self, python: str, words: str) -> None:
        with pytest.raises(UsageError, match=words):
            trlx_problems(python)
