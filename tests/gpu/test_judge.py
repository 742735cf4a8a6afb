"""The judge of the GPU checks, on figures made up here: right ones pass, each wrong one is named. Needs no device."""

from types import SimpleNamespace
from typing import Any

import pytest

from suite.spec.catalogue import find_device
from tests.gpu import judge
from tests.gpu.checks import gpu_manifest, predicted_states

GIB = 1 << 30


def steps(*offsets: float) -> list[dict[str, Any]]:
    """Steps whose log-probs and values are so far from those of training without rounding."""
    return [
        {"logprobs": [-10.0 + 0.01 * step + offset] * 4, "values": [0.1 * step + offset] * 4}
        for step, offset in enumerate(offsets)
    ]


NEAR, FAR, STILL = steps(0.002, 0.01, 0.03), steps(0.5, 0.5, 0.5), [steps(0.0)[0]] * 3


@pytest.mark.parametrize(
    ("exact", "first", "second", "words"),
    [
        (steps(0, 0, 0), steps(0.002, 0.03, 0.09), NEAR, None),
        (steps(0, 0, 0), FAR, NEAR, "step 0, logprobs: 0.5000 and 0.0020 from fp32, limit 0.02"),
        (steps(0, 0, 0), steps(0.0, 0.02, 0.0), steps(0.0, -0.02, 0.0), "0.0400 apart"),
        (steps(0, 0, 0), steps(float("nan"), 0.0, 0.0), steps(0, 0, 0), "nan"),
        (STILL, STILL, STILL, "exact: the log-probs did not change in 3 steps"),
    ],
)
def test_engines_agree_where_each_is_off_by_rounding_alone(exact: Any, first: Any, second: Any, words: Any) -> None:
    complaints = judge.agreement({"exact": exact, "deepspeed": first, "megatron": second})
    assert complaints == [] if words is None else words in complaints[0]


def test_compiled_kernels_may_only_round_differently() -> None:
    assert judge.same_steps(steps(0.0, 0.0), steps(0.001, 0.02)) == []
    assert judge.same_steps(steps(0.0, 0.0), steps(0.0, 0.2)) == ["step 1: log-probs 0.2000 apart, limit 0.05"]


def phase(name: str, seconds: float, **memory: int) -> dict[str, Any]:
    return {"phase": name, "seconds": seconds, "memory": memory}


@pytest.mark.parametrize(("seconds", "is_right"), [(1.02, True), (0.2, False), (0.9, False), (1.1, False)])
def test_a_host_clock_is_the_devices_or_a_little_longer(seconds: float, is_right: bool) -> None:
    wrong = [f"train: {seconds:.4f} s, by CUDA events 1.0000 s"]
    assert judge.phase_seconds([phase("train", seconds)], [phase("train", 1.0)]) == ([] if is_right else wrong)
    assert judge.phase_seconds([], []) == ["no phase was told"]


def test_peaks_are_the_devices_own_but_for_what_the_driver_keeps() -> None:
    def told(**memory: int) -> list[dict[str, Any]]:
        usual = {"peak_allocated_bytes": 8 * GIB, "peak_reserved_bytes": 10 * GIB, "peak_device_bytes": 11 * GIB}
        return [phase("train", 1.0, **{**usual, **memory})]

    assert judge.peaks(told(), told(peak_device_bytes=12 * GIB), 80 * GIB) == []
    complaints = judge.peaks(told(peak_allocated_bytes=9 * GIB), told(), 80 * GIB)
    assert complaints == [f"train: peak_allocated_bytes {9 * GIB}, the device says {8 * GIB}"]
    assert judge.block(GIB + (1 << 20), GIB) == []
    assert judge.block(GIB // 2, GIB)


def test_ceilings_are_most_of_the_data_sheet_and_no_more() -> None:
    a100 = find_device("NVIDIA A100-SXM4-80GB")
    assert a100 is not None

    def told(matmul: float, copy: float) -> dict[str, Any]:
        flops, rate = matmul * a100.peak_flops["bf16"], copy * a100.memory_bytes_per_second
        return {"matmul_dtype": "bfloat16", "matmul_flops": flops, "copy_bytes_per_second": rate}

    assert judge.ceilings(told(0.8, 0.9), a100) == []
    assert judge.ceilings(told(0.5, 1.1), a100) == [
        "matrix product in bf16: 50% of what A100-SXM-80GB should reach",
        "copy: 110% of what A100-SXM-80GB should reach",
    ]


@pytest.mark.parametrize("backend", ["deepspeed", "megatron"])
def test_the_planner_expects_states_to_leave_the_device(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without a GPU, because the planner asks none: only the look at it is replaced."""
    here = SimpleNamespace(stacks=lambda backends: {name: {} for name in backends})
    monkeypatch.setattr("benchmarks.ranks.look_at_machine", lambda python, device: here)
    plain, offloaded = (
        predicted_states(gpu_manifest(backend, layout={"offload_optimizer": one}), "NVIDIA H200")
        for one in (False, True)
    )
    assert plain - offloaded > 7.9 * 124e6  # both moments at the least, in fp32


def communicated(made: int, used: int) -> dict[str, int]:
    return {"before": 0, "groups made": made << 20, "groups used": used << 20}


def windows(watts: float | None) -> tuple[tuple[float, float | None], ...]:
    return (5.0, 400.0), (5.0, watts)


FAILURE = {"kind": "oom_device", "phase": "score", "evidence": ("OutOfMemoryError: CUDA out of memory.",)}
ON_DEVICE = {"device_bytes": 3 * GIB, "host_bytes": GIB}


@pytest.mark.parametrize(
    ("complaints", "expected"),
    [
        (judge.energy(4000.0, windows(420.0)), 0),
        (judge.energy(2000.0, windows(420.0)), 1),
        (judge.energy(8000.0, windows(420.0)), 1),
        (judge.energy(None, windows(420.0)), 1),
        (judge.energy(4000.0, windows(None)), 1),
        (judge.offload(ON_DEVICE, {"device_bytes": 2 * GIB, "host_bytes": 2 * GIB}, GIB), 0),
        (judge.offload(ON_DEVICE, ON_DEVICE, GIB), 2),
        (judge.communicators(communicated(10, 880)), 0),
        (judge.communicators(communicated(900, 900)), 2),
        (judge.out_of_memory({"status": "failed", "failure": FAILURE}, ("score",)), 0),
        (judge.out_of_memory({"status": "failed", "failure": {**FAILURE, "kind": "unknown"}}, ("score",)), 1),
        (judge.out_of_memory({"status": "failed", "failure": {**FAILURE, "phase": None}}, ("score",)), 1),
        (judge.out_of_memory({"status": "failed", "failure": {**FAILURE, "evidence": []}}, ("score",)), 1),
        (judge.out_of_memory({"status": "ok", "failure": None}, ("score",)), 2),
    ],
)
def test_each_wrong_figure_is_a_complaint(complaints: list[str], expected: int) -> None:
    """Joules against power over time, bytes that left the device, communicators, and what a failure says."""
    assert len(complaints) == expected
