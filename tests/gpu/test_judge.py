"""The judge of the GPU checks, on figures made up here: right ones pass, each wrong one is named. Needs no device."""

from typing import Any

import pytest

from suite.spec.catalogue import find_device
from tests.gpu import judge

GIB = 1 << 30


def steps(*offsets: float) -> list[dict[str, Any]]:
    """Steps whose log-probs and values are so far from those of training without rounding."""
    return [
        {"logprobs": [-10.0 + 0.01 * step + offset] * 4, "values": [0.1 * step + offset] * 4}
        for step, offset in enumerate(offsets)
    ]


EXACT, NEAR, STILL = steps(0, 0, 0), steps(0.002, 0.01, 0.03), [steps(0.0)[0]] * 3


def agreement(exact: Any, first: Any, second: Any) -> list[str]:
    return judge.agreement({"exact": exact, "deepspeed": first, "megatron": second})


def phase(seconds: float = 1.0, allocated: int = 8 * GIB) -> list[dict[str, Any]]:
    return [{"phase": "train", "seconds": seconds, "memory": {"peak_allocated_bytes": allocated}}]


def ceilings(matmul: float, copy: float) -> list[str]:
    """Of shares of an A100's data sheet."""
    a100 = find_device("NVIDIA A100-SXM4-80GB")
    assert a100 is not None
    flops, rate = matmul * a100.peak_flops["bf16"], copy * a100.memory_bytes_per_second
    return judge.ceilings({"matmul_dtype": "bfloat16", "matmul_flops": flops, "copy_bytes_per_second": rate}, a100)


def out_of_memory(**changes: Any) -> list[str]:
    failure = {"kind": "oom_device", "phase": "score", "evidence": ("OutOfMemoryError: CUDA out of memory.",)}
    return judge.out_of_memory({"status": "failed", "failure": {**failure, **changes}}, ("score",))


WINDOWS = (5.0, 400.0), (5.0, 420.0)
ON_DEVICE, LEFT = {"device_bytes": 3 * GIB, "host_bytes": GIB}, {"device_bytes": 2 * GIB, "host_bytes": 2 * GIB}


@pytest.mark.parametrize(
    ("complaints", "words"),
    [
        (agreement(EXACT, steps(0.002, 0.03, 0.09), NEAR), None),
        (agreement(EXACT, steps(0.5, 0.5, 0.5), NEAR), "step 0, logprobs: 0.5000 and 0.0020 from fp32, limit 0.02"),
        (agreement(EXACT, steps(0.0, 0.02, 0.0), steps(0.0, -0.02, 0.0)), "0.0400 apart"),
        (agreement(EXACT, steps(float("nan"), 0.0, 0.0), EXACT), "nan"),
        (agreement(STILL, STILL, STILL), "exact: the log-probs did not change in 3 steps"),
        (judge.same_steps(steps(0.0, 0.0), steps(0.001, 0.02)), None),
        (judge.same_steps(steps(0.0, 0.0), steps(0.0, 0.2)), "step 1: log-probs 0.2000 apart, limit 0.05"),
        (judge.phase_seconds(phase(1.02), phase()), None),
        (judge.phase_seconds(phase(0.9), phase()), "train: 0.9000 s, by CUDA events 1.0000 s"),
        (judge.phase_seconds([], []), "no phase was told"),
        (judge.peaks(phase(), phase(), 80 * GIB), None),
        (judge.peaks(phase(allocated=9 * GIB), phase(), 80 * GIB), f"{9 * GIB}, the device says {8 * GIB}"),
        (judge.block(GIB + (1 << 20), GIB), None),
        (judge.block(GIB // 2, GIB), "the peak rose by"),
        (ceilings(0.8, 0.9), None),
        (ceilings(0.5, 0.9), "matrix product in bf16: 50% of what A100-SXM-80GB should reach"),
        (ceilings(0.8, 1.1), "copy: 110% of what A100-SXM-80GB should reach"),
        (judge.energy(4000.0, WINDOWS), None),
        (judge.energy(8000.0, WINDOWS), "8000 J by the counter, 4100 J by sampled power"),
        (judge.energy(None, WINDOWS), "not all are known"),
        (judge.offload(ON_DEVICE, LEFT, GIB), None),
        (judge.offload(ON_DEVICE, ON_DEVICE, GIB), "the device holds 0 bytes less"),
        (out_of_memory(), None),
        (out_of_memory(kind="unknown"), "wanted failed, oom_device, score"),
        (out_of_memory(evidence=[]), "no line proves it"),
    ],
)
def test_each_wrong_figure_is_a_complaint(complaints: list[str], words: str | None) -> None:
    assert complaints == [] if words is None else words in complaints[0]
