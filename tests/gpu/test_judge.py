"""The judge of the GPU checks, on figures made up here: right ones pass, each wrong one is named. Needs no device."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from suite.spec.catalogue import find_device
from tests.gpu import judge
from tests.gpu.checks import manifest_of, predicted_states

GIB = 1 << 30


def steps(*offsets: float, drift: float = 0.0) -> list[dict[str, Any]]:
    """Steps whose log-probs and values are so far from those of training without rounding."""
    return [
        {"logprobs": [-10.0 + 0.01 * step + offset + drift] * 4, "values": [0.1 * step + offset] * 4}
        for step, offset in enumerate(offsets)
    ]


class TestAgreement:
    exact = steps(0.0, 0.0, 0.0)

    def judged(self, first: list[dict[str, Any]], second: list[dict[str, Any]]) -> list[str]:
        return judge.agreement({"exact": self.exact, "deepspeed": first, "megatron": second})

    def test_engines_that_are_off_by_rounding_agree(self) -> None:
        assert self.judged(steps(0.002, 0.03, 0.09), steps(0.002, 0.01, 0.03)) == []

    def test_an_engine_that_is_far_from_fp32_is_named(self) -> None:
        complaints = self.judged(steps(0.5, 0.5, 0.5), steps(0.002, 0.01, 0.03))
        assert complaints[0] == "step 0, logprobs: 0.5000 and 0.0020 from fp32, limit 0.02"

    def test_engines_on_either_side_of_fp32_are_too_far_apart(self) -> None:
        assert "0.0400 apart" in self.judged(steps(0.0, 0.02, 0.0), steps(0.0, -0.02, 0.0))[0]

    def test_what_is_no_number_does_not_pass(self) -> None:
        assert self.judged(steps(float("nan"), 0.0, 0.0), self.exact)

    def test_steps_that_change_nothing_prove_nothing(self) -> None:
        still = [steps(0.0)[0]] * 3
        complaints = judge.agreement({"exact": still, "deepspeed": still, "megatron": still})
        assert complaints[0] == "exact: the log-probs did not change in 3 steps"


def test_compiled_kernels_may_only_round_differently() -> None:
    assert judge.same_steps(steps(0.0, 0.0), steps(0.001, 0.02)) == []
    assert judge.same_steps(steps(0.0, 0.0), steps(0.0, 0.2)) == ["step 1: log-probs 0.2000 apart, limit 0.05"]


def phase(name: str, seconds: float, **memory: int) -> dict[str, Any]:
    return {"phase": name, "seconds": seconds, "memory": memory}


class TestClock:
    def test_a_host_clock_a_little_longer_than_the_devices_is_right(self) -> None:
        assert judge.phase_seconds([phase("train", 1.02)], [phase("train", 1.0)]) == []

    @pytest.mark.parametrize("seconds", [0.2, 0.9, 1.1])
    def test_a_clock_that_stops_before_the_device_or_long_after_it_is_wrong(self, seconds: float) -> None:
        complaints = judge.phase_seconds([phase("train", seconds)], [phase("train", 1.0)])
        assert complaints == [f"train: {seconds:.4f} s, by CUDA events 1.0000 s"]

    def test_nothing_told_is_no_pass(self) -> None:
        assert judge.phase_seconds([], []) == ["no phase was told"]


class TestMemory:
    def told(self, **memory: int) -> list[dict[str, Any]]:
        usual = {"peak_allocated_bytes": 8 * GIB, "peak_reserved_bytes": 10 * GIB, "peak_device_bytes": 11 * GIB}
        return [phase("train", 1.0, **{**usual, **memory})]

    def test_the_devices_own_figures_pass_and_so_does_what_the_driver_keeps(self) -> None:
        own = self.told(peak_device_bytes=12 * GIB)
        assert judge.peaks(self.told(), own, 80 * GIB) == []

    def test_a_peak_of_another_phase_is_named(self) -> None:
        complaints = judge.peaks(self.told(peak_allocated_bytes=9 * GIB), self.told(), 80 * GIB)
        assert complaints == [f"train: peak_allocated_bytes {9 * GIB}, the device says {8 * GIB}"]

    def test_a_block_is_seen_whole(self) -> None:
        assert judge.block(GIB + (1 << 20), GIB) == []
        assert judge.block(GIB // 2, GIB)


class TestEnergy:
    windows = ((5.0, 400.0), (5.0, 420.0))

    def test_the_counter_agrees_with_power_over_time(self) -> None:
        assert judge.energy(4000.0, self.windows) == []

    @pytest.mark.parametrize("joules", [2000.0, 8000.0, None])
    def test_windows_that_do_not_telescope_or_tell_nothing_are_named(self, joules: float | None) -> None:
        assert len(judge.energy(joules, self.windows)) == 1

    def test_power_that_was_never_sampled_is_not_known(self) -> None:
        assert "not all are known" in judge.energy(4000.0, ((5.0, None),))[0]


class TestCeilings:
    device = find_device("NVIDIA A100-SXM4-80GB")

    def told(self, matmul: float, copy: float) -> dict[str, Any]:
        assert self.device is not None
        return {
            "matmul_dtype": "bfloat16",
            "matmul_flops": matmul * self.device.peak_flops["bf16"],
            "copy_bytes_per_second": copy * self.device.memory_bytes_per_second,
        }

    def test_most_of_the_data_sheet_passes(self) -> None:
        assert self.device is not None
        assert judge.ceilings(self.told(0.8, 0.9), self.device) == []

    def test_too_little_and_more_than_there_is_are_named(self) -> None:
        assert self.device is not None
        assert judge.ceilings(self.told(0.5, 1.1), self.device) == [
            "matrix product in bf16: 50% of what A100-SXM-80GB should reach",
            "copy: 110% of what A100-SXM-80GB should reach",
        ]


class TestOffload:
    plain = MappingProxyType({"device_bytes": 3 * GIB, "host_bytes": GIB})

    def test_bytes_that_move_to_the_host_pass(self) -> None:
        assert judge.offload(self.plain, {"device_bytes": 2 * GIB, "host_bytes": 2 * GIB}, GIB) == []

    def test_bytes_that_stay_are_named_on_both_sides(self) -> None:
        assert len(judge.offload(self.plain, self.plain, GIB)) == 2

    @pytest.mark.parametrize("backend", ["deepspeed", "megatron"])
    def test_the_planner_expects_states_to_leave_the_device(
        self, backend: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """On a machine without a GPU, because the planner asks none: only the look at it is replaced."""
        monkeypatch.setattr("benchmarks.ranks.look_at_machine", lambda python, device: HereAsCuda())
        plain, offloaded = (
            predicted_states(manifest_of(backend, layout={"offload_optimizer": one}), "NVIDIA H200")
            for one in (False, True)
        )
        assert plain - offloaded > 7.9 * 124e6  # both moments at the least, in fp32


class HereAsCuda:
    """A machine whose stacks have the versions that are pinned."""

    def stacks(self, backends: list[str]) -> dict[str, dict[str, str]]:
        return {name: {} for name in backends}


class TestCommunicators:
    eager = MappingProxyType({"before": 0, "groups made": 900 << 20, "groups used": 900 << 20})

    def test_lazy_ones_are_made_later_and_end_the_same(self) -> None:
        lazy = {"before": 0, "groups made": 10 << 20, "groups used": 880 << 20}
        assert judge.communicators(self.eager, lazy) == []

    def test_lazy_ones_that_hold_more_are_named(self) -> None:
        lazy = {"before": 0, "groups made": 1200 << 20, "groups used": 1500 << 20}
        assert len(judge.communicators(self.eager, lazy)) == 2


class TestOutOfMemory:
    failure = MappingProxyType(
        {"kind": "oom_device", "phase": "score", "evidence": ("OutOfMemoryError: CUDA out of memory.",)}
    )

    def test_kind_phase_and_proof_pass(self) -> None:
        assert judge.out_of_memory({"status": "failed", "failure": self.failure}, ("score",)) == []

    @pytest.mark.parametrize("wrong", [{"kind": "unknown"}, {"phase": None}, {"evidence": []}])
    def test_each_of_them_is_needed(self, wrong: dict[str, Any]) -> None:
        assert len(judge.out_of_memory({"status": "failed", "failure": {**self.failure, **wrong}}, ("score",))) == 1

    def test_a_run_that_did_not_fail_is_named(self) -> None:
        assert judge.out_of_memory({"status": "ok", "failure": None}, ("score",))
