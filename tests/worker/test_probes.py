"""Memory, facts, ceilings and the GPU sampler's arithmetic."""

from __future__ import annotations

import os
import time

import pytest
import torch

from suite.worker.ceilings import measure_ceilings
from suite.worker.facts import collect_facts, driver_version, relevant_variables, threads
from suite.worker.memory import MemoryProbe
from suite.worker.nvml import DeviceSampler, Sample, summarise
from suite.worker.resident import peak_resident_bytes, reset_peak_resident, resident_bytes
from suite.worker.world import World

ALONE = World(0, 1, 0, 1, torch.device("cpu"))
BIG = 64 << 20
SLACK = 8 << 20


class TestMemory:
    def test_a_peak_lasts_until_it_is_reset(self) -> None:
        reset_peak_resident()
        before = resident_bytes()
        block = bytearray(BIG)
        del block
        assert peak_resident_bytes() >= before + BIG - SLACK
        reset_peak_resident()
        assert peak_resident_bytes() < before + BIG - SLACK

    def test_a_cpu_reports_what_was_added_to_the_baseline_and_no_allocator(self) -> None:
        probe = MemoryProbe(ALONE.device, resident_bytes())
        probe.reset()
        block = torch.ones(BIG, dtype=torch.uint8)
        peaks = probe.peaks()
        assert abs((peaks["peak_allocated_bytes"] or 0) - block.numel()) < SLACK
        assert peaks["peak_reserved_bytes"] is peaks["peak_device_bytes"] is peaks["allocation_retries"] is None

    def test_less_than_the_baseline_is_nothing(self) -> None:
        assert MemoryProbe(ALONE.device, 1 << 50).peaks()["peak_allocated_bytes"] == 0


class TestFacts:
    def test_secrets_are_never_among_the_variables(self) -> None:
        steering = {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "INFO", "TORCHDYNAMO_DISABLE": "1"}
        secrets = {"CUDA_API_KEY": "x", "DS_TOKEN": "x", "TORCH_PASSWORD": "x", "NCCL_AUTH": "x"}
        assert relevant_variables({**steering, **secrets, "HOME": "/", "AWS_REGION": "x"}) == steering

    def test_a_cpu_has_no_cuda_facts_and_its_packages_have_versions(self) -> None:
        facts = collect_facts(ALONE, ["torch", "pytest", "no-such-package"])
        assert facts["device"]["type"] == "cpu"
        assert facts["cuda"] is facts["nccl"] is facts["driver"] is None
        assert facts["packages"]["torch"] == torch.__version__
        assert "pytest" in facts["packages"]
        assert "no-such-package" not in facts["packages"]
        assert facts["memory_bytes"] > resident_bytes()

    def test_threads_are_those_that_torch_and_openmp_have(self) -> None:
        found = threads({"OMP_NUM_THREADS": "3"})
        assert (found["torch"], found["openmp"]) == (torch.get_num_threads(), 3)
        assert found["cpus"] == len(os.sched_getaffinity(0))
        assert threads({"OMP_NUM_THREADS": "3,2"})["openmp"] is threads({})["openmp"] is None

    @pytest.mark.parametrize(
        ("line", "version"),
        [
            ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023", "535.104.05"),
            ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build", "550.54.15"),
            ("", None),
        ],
    )
    def test_the_driver_tells_its_version(self, line: str, version: str | None) -> None:
        assert driver_version(line) == version

    def test_ceilings_are_measured_quickly_and_plausible(self) -> None:
        began = time.perf_counter()
        ceilings = measure_ceilings(ALONE)
        assert time.perf_counter() - began < 5
        assert 1e8 < ceilings["matmul_flops"] < 1e14
        assert 1e7 < ceilings["copy_bytes_per_second"] < 1e13


class PretendedGpu:
    """Tells one reading for ever; its energy counter grows by 30 J each time it is read."""

    def __init__(self) -> None:
        self._joules = 1000.0

    def sample(self) -> Sample:
        return Sample(250.0, 1500, 2600, 61, 0x4, 97)

    def energy_joules(self) -> float:
        self._joules += 30.0
        return self._joules


class TestSampler:
    def test_a_window_has_means_extremes_and_every_reason(self) -> None:
        samples = [Sample(100.0, 1200, 2600, 50, 0x4, 80), Sample(300.0, 1800, 2600, 70, 0x20 | 0x1, 100)]
        assert summarise(samples, 12.5) == {
            "energy_joules": 12.5,
            "power_watts_mean": 200.0,
            "sm_clock_mhz_min": 1200,
            "sm_clock_mhz_mean": 1500.0,
            "memory_clock_mhz_mean": 2600.0,
            "temperature_max": 70,
            "throttle_reasons": ["sw_power_cap", "sw_thermal_slowdown"],
            "utilisation_mean": 90.0,
            "samples": 2,
        }

    def test_what_a_gpu_does_not_tell_is_null_not_zero(self) -> None:
        window = summarise([Sample(None, None, None, None, None, None)], None)
        assert {value for name, value in window.items() if name not in ("throttle_reasons", "samples")} == {None}
        assert window["throttle_reasons"] == []

    def test_a_window_counts_only_its_own_samples_and_energy(self) -> None:
        sampler = DeviceSampler(PretendedGpu())  # type: ignore[arg-type]
        sampler.start()
        sampler.open_window()
        time.sleep(0.35)
        first = sampler.close_window()
        sampler.stop()
        sampler.open_window()
        assert 1 <= first["samples"] <= 4
        assert first["energy_joules"] == 30.0
        assert first["power_watts_mean"] == 250.0
        assert sampler.close_window()["samples"] == 0
