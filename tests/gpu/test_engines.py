"""The engines on a real device: agreement, compiled kernels, offloading, overflow."""

from typing import Any

import pytest

from suite.spec.manifest import Manifest
from tests.gpu import judge
from tests.gpu.checks import agreement_manifest, gpu_manifest, predicted_states, run_check, run_together
from tests.gpu.rank import STEPS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]
BACKENDS = ("deepspeed", "megatron")
#: the first torch whose variable-length attention takes a window and grouped queries
VARIABLE_LENGTH = (2, 12)


def test_both_engines_agree_in_bf16_at_a_vocabulary_of_50257(device: dict[str, Any]) -> None:
    told = run_check("agreement", agreement_manifest("deepspeed"))
    assert judge.agreement(told) == []


def test_compiled_kernels_change_no_result(device: dict[str, Any]) -> None:
    """DeepSpeed turns torch's compiler off for its process, so Megatron is alone in these."""
    manifest = agreement_manifest("megatron")
    compiled, eager = run_together([("alone", manifest), ("eager", manifest)])
    if compiled["notes"] == eager["notes"]:
        pytest.skip(f"nothing is compiled here: {'; '.join(note for note in compiled['notes'] if 'compile' in note)}")
    assert len(compiled["steps"]) == STEPS
    assert judge.same_steps(compiled["steps"], eager["steps"]) == []


def test_a_packed_row_is_one_kernel_whose_results_are_those_of_each_sample_alone(device: dict[str, Any]) -> None:
    told = run_check("packed", gpu_manifest("deepspeed"))
    assert len(told["distances"]) == 4 and max(told["distances"]) < 2e-2  # a few roundings of bf16
    if tuple(map(int, device["torch"].split("+")[0].split(".")[:2])) < VARIABLE_LENGTH:
        pytest.skip(f"results are right, but torch {device['torch']} has no variable-length kernel for grouped queries")
    assert "variable-length" in told["kernel"]


@pytest.fixture(scope="module")
def held(device: dict[str, Any]) -> dict[tuple[str, bool], dict[str, Any]]:
    """Bytes that each engine holds with and without its optimizer offloaded."""
    cases = [(backend, offloaded) for backend in BACKENDS for offloaded in (False, True)]
    results = run_together([("held", offloading(*case)) for case in cases])
    return dict(zip(cases, results, strict=True))


def offloading(backend: str, offloaded: bool) -> Manifest:
    return gpu_manifest(backend, layout={"offload_optimizer": offloaded})


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_offloaded_optimizer_leaves_the_device_as_predicted(backend, held, device):
    plain, offloaded = (predicted_states(offloading(backend, one), device["name"]) for one in (False, True))
    assert judge.offload(held[backend, False], held[backend, True], plain - offloaded) == []


@pytest.fixture(scope="module")
def skipped(device: dict[str, Any]) -> dict[str, list[Any]]:
    """Skipped optimizer steps by iteration, from a loss scale that overflows."""
    manifests = [gpu_manifest(backend, precision="fp16") for backend in BACKENDS]
    results = run_together([("overflow", manifest) for manifest in manifests])
    return {backend: told["skipped_steps"] for backend, told in zip(BACKENDS, results, strict=True)}


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_fp16_overflow_is_counted_as_a_skipped_step(backend: str, skipped: dict[str, list[Any]]) -> None:
    assert skipped[backend][0] >= 1
