"""Devices that are to be free, as the driver looks at them: who is there is named, in one line."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from suite.cli.app import app
from suite.conduct.planning import machine as planning
from suite.launch import idle
from suite.launch.idle import require_idle_cpus, require_idle_gpus
from suite.launch.probe import LocalDevice
from suite.spec.base import UsageError

GIB = 1 << 30
UUIDS = ("GPU-a", "GPU-b")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two free GPUs, by UUID; a test changes what the second answers."""
    second: dict[str, Any] = {"processes": [], "used": GIB // 2, "busy": 0}

    def handle_of(uuid: str) -> int:
        if uuid not in UUIDS:
            raise pynvml.NVMLError_NotFound
        return UUIDS.index(uuid)

    calls = {
        "Init": lambda: None,
        "Shutdown": lambda: None,
        "DeviceGetHandleByUUID": handle_of,
        "DeviceGetIndex": lambda handle: handle,
        "DeviceGetComputeRunningProcesses": lambda handle: second["processes"] if handle else [],
        "DeviceGetMemoryInfo": lambda handle: SimpleNamespace(used=second["used"] if handle else 0),
        "DeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=second["busy"] if handle else 0),
    }
    for name, call in calls.items():
        monkeypatch.setattr(pynvml, f"nvml{name}", call)
    return second


def test_free_gpus_are_no_reason_to_wait(answers: dict[str, Any]) -> None:
    require_idle_gpus(UUIDS)
    require_idle_gpus(("MIG-unknown",))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"processes": [SimpleNamespace(pid=1, usedGpuMemory=40 * GIB)]},
            r"GPU 1 is used by process 1 \(.+\) with 40\.0 GiB; wait",
        ),
        ({"processes": [SimpleNamespace(pid=1 << 30, usedGpuMemory=None)]}, rf"by process {1 << 30};"),
        ({"used": 9 * GIB}, r"somebody who is not shown, with 9\.0 GiB"),
        ({"busy": 80}, "somebody who is not shown, 80 % of the time"),
    ],
)
def test_whoever_uses_a_gpu_is_named(answers: dict[str, Any], change: dict[str, Any], words: str) -> None:
    answers.update(change)
    require_idle_gpus(UUIDS[:1])
    with pytest.raises(UsageError, match=words) as caught:
        require_idle_gpus(UUIDS)
    assert "GPU 0" not in str(caught.value)


def test_a_cpu_that_works_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "usable_cpus", lambda: (0, 1, 2, 3))
    monkeypatch.setattr(os, "getloadavg", lambda: (1.9, 0.0, 0.0))
    require_idle_cpus()
    monkeypatch.setattr(os, "getloadavg", lambda: (2.1, 0.0, 0.0))
    with pytest.raises(UsageError, match=r"the load of the last minute is 2\.1 on 4 CPUs"):
        require_idle_cpus()


@pytest.mark.parametrize("planned", [True, False])
def test_a_run_is_refused_before_anything_is_made_and_a_plan_is_not(
    answers: dict[str, Any], planned: bool, tmp_path: Any, monkeypatch: Any, capsys: Any
) -> None:
    gpus = tuple(LocalDevice(index=0, uuid=uuid, name="NVIDIA H100 80GB HBM3", memory_bytes=80 * GIB) for uuid in UUIDS)
    monkeypatch.setattr(planning, "local_devices", lambda: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    answers["busy"] = 99
    arguments = ("run", "--size", "125M", "--backend", "deepspeed", "--require-idle", "--runs", str(tmp_path / "runs"))
    with pytest.raises(SystemExit) as ended:
        app((*arguments, *(["--dry-run"] if planned else [])), prog_name="suite")
    printed = capsys.readouterr()
    assert ended.value.code == (0 if planned else 2), printed
    assert ("--require-idle: GPU 1 is used by somebody" in printed.err) == (not planned)
    assert not (tmp_path / "runs").exists()
