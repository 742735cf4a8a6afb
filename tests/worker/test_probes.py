"""Memory, facts, ceilings and the GPU sampler's arithmetic."""

import os
import weakref
from importlib.metadata import version
from typing import Any
from unittest import mock

import pytest
import torch

from suite.worker.ceilings import measure_ceilings
from suite.worker.events import EventLog, Progress
from suite.worker.facts import allocator, allows_tf32, collect_facts, driver_version, relevant_variables
from suite.worker.loop import Loop
from suite.worker.memory import MemoryProbe
from suite.worker.nvml import DeviceSampler, Reading, summarise
from suite.worker.process import peak_resident_bytes, reset_peak_resident, resident_bytes
from suite.worker.recorder import Recorder
from tests.spec.test_redaction import VALUES, WORD
from tests.waiting import wait_until
from tests.worker.trainers.runs import ALONE
from tests.worker.written import events_in

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
        assert MemoryProbe(ALONE.device, 1 << 50).peaks()["peak_allocated_bytes"] == 0, "less than the baseline"

    def test_behind_the_set_up_the_allocator_is_emptied_before_peaks_start_anew(self, monkeypatch):
        calls: list[str] = []
        for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
            monkeypatch.setattr(torch.cuda, name, lambda *_, name=name: calls.append(name))
        cycle: Any = type("Held", (), {})()
        cycle.itself, gone = cycle, weakref.ref(cycle)
        del cycle
        MemoryProbe(torch.device("cuda", 0), 0).forget_setup()
        assert calls == ["synchronize", "empty_cache", "reset_peak_memory_stats"]
        assert gone() is None  # a cycle that would have kept its tensors in the allocator

    def test_what_an_engine_used_before_it_slept_is_seen_and_torchs_count_of_it_is_not_told(self, monkeypatch):
        free, run = [2, 6], mock.MagicMock()
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free[0], 8))
        for name in ("reset_peak_memory_stats", "max_memory_allocated", "max_memory_reserved", "memory_stats"):
            monkeypatch.setattr(torch.cuda, name, lambda *_: {})
        probe = MemoryProbe(torch.device("cuda", 0), 0, sleeps=True)
        probe.reset()
        run.generator.overlaps, run.generator.sleep = False, lambda: free.pop(0)
        run.recorder.note_memory = probe.note
        Loop._generate(mock.Mock(_generator=run.generator), mock.Mock(), run.recorder)
        peaks = probe.peaks()
        assert (peaks["peak_device_bytes"], free) == (6, [6])
        assert peaks["peak_allocated_bytes"] is peaks["peak_reserved_bytes"] is None


class TestFacts:
    def test_secrets_are_never_among_the_variables(self) -> None:
        steering = {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "INFO", "TORCHDYNAMO_DISABLE": "1", "FI_PROVIDER": "efa"}
        steering |= {"UCX_TLS": "rc", "TRITON_CACHE_DIR": "/tmp/triton"}
        secrets = {"CUDA_API_KEY": "x", "DS_TOKEN": "x", "TORCH_PASSWORD": "x", "NCCL_AUTH": "x", "DS_PASS": WORD}
        secrets |= {f"NCCL_{name}": value for name, value in VALUES.items()}
        assert relevant_variables({**steering, **secrets, "HOME": "/", "AWS_REGION": "x"}) == steering

    def test_a_cpu_has_no_cuda_facts_and_its_packages_have_versions(self) -> None:
        facts = collect_facts(ALONE, ["torch", "pytest", "no-such-package"])
        assert facts["device"]["type"] == "cpu"
        assert facts["cuda"] is facts["nccl"] is facts["driver"] is None
        assert facts["packages"]["torch"] == version("torch")
        assert "pytest" in facts["packages"]
        assert "no-such-package" not in facts["packages"]
        assert facts["memory_bytes"] > resident_bytes()
        assert facts["threads"] == {"torch": torch.get_num_threads(), "cpus": len(os.sched_getaffinity(0))}

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

    @pytest.mark.parametrize(("precision", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16)])
    def test_the_product_is_in_the_runs_own_precision(self, monkeypatch, precision, dtype):
        multiplied = []
        product = torch.matmul
        monkeypatch.setattr(torch, "matmul", lambda a, b, out: multiplied.append(a.dtype) or product(a, b, out=out))
        ceilings = measure_ceilings(ALONE, precision)
        assert ceilings["matmul_dtype"] == str(dtype).removeprefix("torch.")
        assert ceilings["matmul_flops"] > 0 and ceilings["copy_bytes_per_second"] > 0
        assert set(multiplied) == {dtype}

    def test_the_allocator_is_told_with_what_its_user_asked_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native", raising=False)
        for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
            monkeypatch.delenv(name, raising=False)
        assert allocator() == {"backend": "native", "configuration": None}
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        assert allocator() == {"backend": "native", "configuration": "expandable_segments:True"}

    def test_tf32_is_read_however_it_was_chosen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Newer:
            fp32_precision = "tf32"

            @property
            def allow_tf32(self) -> bool:
                raise RuntimeError("mix of the legacy and new APIs")

        assert allows_tf32() is False
        monkeypatch.setattr(torch.backends.cuda, "matmul", Newer())
        assert allows_tf32() is True


def reading(*values: float | None) -> Reading:
    names = ("power_watts", "sm_clock_mhz", "memory_clock_mhz", "temperature", "throttle_mask", "utilisation")
    return dict(zip(names, values, strict=True))


def pretended_gpu() -> Any:
    """Tells one reading whenever it is asked; its energy counter is what the test sets."""
    gpu = mock.Mock(joules=5000.0)
    gpu.sample.return_value = reading(250.0, 1500, 2600, 61, 0x4, 97)
    gpu.energy_joules = lambda: gpu.joules
    gpu.others.return_value = {"other_processes": 0, "other_utilisation": None}
    return gpu


class TestSampler:
    def test_a_recorders_windows_run_from_each_begin_to_its_stop_and_leave_the_rest_to_the_counter(self, tmp_path):
        gpu, log = pretended_gpu(), EventLog(str(tmp_path), 0, mirror=False)
        sampler = DeviceSampler(gpu)
        recorder = Recorder(ALONE, log, MemoryProbe(ALONE.device, 0), sampler, Progress())
        for iteration in range(3):
            gpu.joules += 7
            recorder.begin(iteration)
            gpu.joules += 100
            recorder.stop()
            gpu.joules += 1000
            recorder.finish({}, {})
        windows = [event["device"] for event in events_in(tmp_path)]
        assert [window["energy_joules"] for window in windows] == [100.0] * 3
        assert [window["energy_counter_begin_joules"] for window in windows] == [5007.0, 6114.0, 7221.0]
        assert [window["energy_counter_end_joules"] for window in windows] == [5107.0, 6214.0, 7321.0]

    def test_a_window_has_means_extremes_and_every_reason(self) -> None:
        samples = [reading(100.0, 1200, 2600, 50, 0x4, 80), reading(300.0, 1800, 2600, 70, 0x20 | 0x1, 100)]
        window = summarise(samples, 12.5)
        assert (window["energy_joules"], window["power_watts_mean"], window["temperature_max"]) == (12.5, 200.0, 70)
        assert (window["sm_clock_mhz_min"], window["sm_clock_mhz_mean"]) == (1200, 1500.0)
        assert (window["memory_clock_mhz_mean"], window["utilisation_mean"], window["samples"]) == (2600.0, 90.0, 2)
        assert window["throttle_reasons"] == ["sw_power_cap", "sw_thermal_slowdown"]

    def test_what_a_gpu_does_not_tell_is_null_not_zero(self) -> None:
        window = summarise([reading(None, None, None, None, None, None)], None)
        assert {value for name, value in window.items() if name not in ("throttle_reasons", "samples")} == {None}
        assert window["throttle_reasons"] == []

    def test_a_window_counts_only_its_own_samples_and_energy(self) -> None:
        gpu = pretended_gpu()
        sampler = DeviceSampler(gpu)
        sampler.start()
        wait_until(lambda: gpu.sample.call_count > 1)
        sampler.open_window()
        before = gpu.sample.call_count
        wait_until(lambda: gpu.sample.call_count > before + 1)
        gpu.joules += 30
        first = sampler.close_window()
        sampler.stop()
        sampler.open_window()
        assert 1 <= first["samples"] <= gpu.sample.call_count - before + 1
        assert (first["energy_joules"], first["power_watts_mean"]) == (30.0, 250.0)
        assert sampler.close_window()["samples"] == 0
