"""A GPU before a run, through a pretended NVIDIA library: free, used by others, held down; what a rank does then."""

import os
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from suite.worker.devices import REQUIRE_IDLE_VARIABLE, DeviceError, find_idle
from suite.worker.failures import failure_kind
from suite.worker.nvml import NvmlGpu, find_gpu
from suite.worker.trainers.processes import NodeMemory
from tests.worker.pretended_nvml import UNSUPPORTED, PretendedNvml

GIB = 1 << 30
#: about one H100 that nobody uses
FREE: dict[str, Any] = {
    "UtilizationRates": SimpleNamespace(gpu=0),
    "MemoryInfo": SimpleNamespace(used=GIB // 2, total=80 * GIB),
    "CurrentClocksThrottleReasons": 0x1,
    "ComputeRunningProcesses": [],
    "ClockInfo": 345,
    "MaxClockInfo": 1980,
    "EnforcedPowerLimit": 700_000,
    "PowerManagementDefaultLimit": 700_000,
    "PciInfo": SimpleNamespace(busId=b"00000000:CA:00.0"),
}


def gpu(**answers: Any) -> NvmlGpu:
    return NvmlGpu(PretendedNvml(**{**FREE, **answers}), object())


def process(pid: int, size: int | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=size)


def test_a_free_gpu_is_disturbed_by_nothing_though_its_clock_rests_and_this_process_is_there() -> None:
    facts = find_idle("cuda", gpu(ComputeRunningProcesses=[process(os.getpid(), GIB)]))
    assert facts["processes"] == facts["throttle_reasons"] == facts["disturbed_by"] == []
    assert (facts["used_bytes"], facts["sm_clock_mhz"], facts["power_limit_watts"]) == (GIB // 2, 345, 700.0)


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"ComputeRunningProcesses": [process(7, 40 * GIB), process(8, None)]}, "2 other processes hold 40.0 GiB"),
        ({"MemoryInfo": SimpleNamespace(used=3 * GIB, total=80 * GIB)}, "3.0 GiB are in use by nobody who can be seen"),
        ({"UtilizationRates": SimpleNamespace(gpu=97)}, "it is 97 % busy"),
        ({"EnforcedPowerLimit": 400_000}, "its power limit is 400 W instead of 700 W"),
        ({"CurrentClocksThrottleReasons": 0x41}, "its clocks are held down by hw_thermal_slowdown"),
    ],
)
def test_what_would_be_measured_too_is_told_and_refused_where_a_free_gpu_is_wanted(answers, words, monkeypatch):
    facts = find_idle("cuda", gpu(**answers))
    assert len(facts["disturbed_by"]) == 1 and words in facts["disturbed_by"][0]
    monkeypatch.setenv(REQUIRE_IDLE_VARIABLE, "1")
    with pytest.raises(DeviceError, match="--require-idle: the GPU is not free: ") as caught:
        find_idle("cuda", gpu(**answers))
    assert words in str(caught.value)
    assert failure_kind(caught.value, "setup") == "gpu_unavailable"


def test_what_the_library_does_not_tell_is_null_and_disturbs_nobody() -> None:
    facts = find_idle("cuda", gpu(**dict.fromkeys(FREE, UNSUPPORTED)))
    assert facts.pop("processes") == facts.pop("throttle_reasons") == facts.pop("disturbed_by") == []
    assert set(facts.values()) == {None}


def test_what_a_node_holds_at_most_takes_one_query_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.Thread", mock.Mock())
    only = NvmlGpu(PretendedNvml(MemoryInfo=SimpleNamespace(used=GIB)), object())
    assert NodeMemory(None, 1, False, only).peaks()["peak_device_bytes"] == GIB


def test_memory_in_use_is_without_the_drivers_own_where_the_library_tells_them_apart() -> None:
    nvml = PretendedNvml(MemoryInfo=lambda handle, version=None: SimpleNamespace(used=GIB if version else 2 * GIB))
    only = NvmlGpu(nvml, object())
    assert only.used_bytes() == 2 * GIB
    nvml.nvmlMemory_v2 = 0x02000028
    assert only.used_bytes() == GIB


def test_the_place_of_a_gpu_is_its_pci_address() -> None:
    assert gpu().pci_address() == "0000:ca:00.0"
    assert gpu(PciInfo=SimpleNamespace(busId="00010000:17:00.0")).pci_address() == "10000:17:00.0"
    assert gpu(PciInfo=UNSUPPORTED).pci_address() is None


def test_a_cpu_tells_its_load_and_is_never_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE_IDLE_VARIABLE, "1")
    facts = find_idle("cpu", None)
    assert facts["cpus"] == len(os.sched_getaffinity(0)) and facts["load"] >= 0


def test_a_rank_looks_at_its_own_gpu_and_says_nothing_where_nobody_can_be_asked(monkeypatch):
    """The library is replaced where it is opened: the second GPU is used by another process."""
    others = {0: [], 1: [process(7, GIB)]}
    open_gpu = mock.Mock(side_effect=lambda device: gpu(ComputeRunningProcesses=others[device.index]))
    monkeypatch.setattr("suite.worker.nvml.open_gpu", open_gpu)
    monkeypatch.setenv(REQUIRE_IDLE_VARIABLE, "1")
    assert find_idle("cuda", find_gpu(0))["disturbed_by"] == []
    with pytest.raises(DeviceError, match="1 other process"):
        find_idle("cuda", find_gpu(1))
    open_gpu.side_effect = RuntimeError("NVML: not found")
    assert find_idle("cuda", find_gpu(0)) is None


def test_during_a_run_others_are_those_of_other_sessions_and_unknown_where_even_this_process_is_hidden() -> None:
    own, stranger = process(os.getpid(), GIB), process(1 << 30, GIB)
    used = [SimpleNamespace(pid=os.getpid(), smUtil=70), SimpleNamespace(pid=1 << 30, smUtil=25)]
    alone = gpu(ComputeRunningProcesses=[own], ProcessUtilization=used).others()
    assert alone == {"other_processes": 0, "other_utilisation": None}
    shared = gpu(ComputeRunningProcesses=[own, stranger], ProcessUtilization=used).others()
    assert shared == {"other_processes": 1, "other_utilisation": 25}
    silent = gpu(ComputeRunningProcesses=[own, stranger], ProcessUtilization=UNSUPPORTED).others()
    assert silent == {"other_processes": 1, "other_utilisation": None}
    for hidden in ([stranger], [], UNSUPPORTED):
        assert gpu(ComputeRunningProcesses=hidden).others() == {"other_processes": None, "other_utilisation": None}
