"""Devices that are to be free, as the driver looks at them: who is there is named, in one line."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from suite.cli.options.launchers import Where
from suite.conduct.planning import machine as planning
from suite.launch import idle
from suite.launch.idle import require_idle_cpus, require_idle_gpus
from suite.launch.local import LocalLauncher
from suite.launch.probe import LocalDevice
from suite.spec.base import UsageError
from tests.command import suite

GIB = 1 << 30
UUIDS = ("GPU-a", "GPU-b")
FIRST = SimpleNamespace(pid=1, usedGpuMemory=GIB)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Two free GPUs, by UUID; a test changes what the second answers."""
    second: dict[str, Any] = {"processes": [], "used": GIB // 2, "busy": 0}

    def handle_of(uuid: str) -> int:
        if uuid not in UUIDS:
            raise pynvml.NVMLError_NotFound
        return UUIDS.index(uuid)

    def memory_of(handle: int, version: int = 0) -> SimpleNamespace:
        """The library's first version adds what the driver keeps for itself."""
        kept = 0 if version else 2 * GIB
        return SimpleNamespace(used=kept + (second["used"] if handle else 0))

    calls = {
        "Init": lambda: None,
        "Shutdown": lambda: None,
        "DeviceGetHandleByUUID": handle_of,
        "DeviceGetIndex": lambda handle: handle,
        "DeviceGetComputeRunningProcesses": lambda handle: second["processes"] if handle else [],
        "DeviceGetMemoryInfo": memory_of,
        "DeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=second["busy"] if handle else 0),
    }
    for name, call in calls.items():
        monkeypatch.setattr(pynvml, f"nvml{name}", call)
    return second


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"processes": [FIRST]}, r"GPU 1 is used by process 1 \(.+\) with 1\.0 GiB"),
        ({"processes": [SimpleNamespace(pid=1 << 30, usedGpuMemory=None)]}, rf"by process {1 << 30};"),
        ({"used": 9 * GIB}, r"an unidentified process using 9\.0 GiB"),
        ({"busy": 80}, "an unidentified process, 80 % of the time"),
    ],
)
def test_whoever_uses_a_gpu_is_named(answers: dict[str, Any], change: dict[str, Any], words: str) -> None:
    require_idle_gpus((*UUIDS, "MIG-unknown"))
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
def test_a_run_is_refused_before_anything_is_made_and_a_plan_is_not(answers, planned, tmp_path, monkeypatch):
    gpus = tuple(
        LocalDevice(index=index, uuid=uuid, name="NVIDIA H100 80GB HBM3", memory_bytes=80 * GIB)
        for index, uuid in enumerate(UUIDS)
    )
    monkeypatch.setattr(planning, "local_devices", lambda: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    answers["busy"] = 99
    what = ("--size", "125M", "--backend", "deepspeed", "--require-idle", "--runs", tmp_path / "runs")
    done = suite("run", *what, *(["--dry-run"] if planned else []))
    assert done.exit_code == (0 if planned else 2), done.output
    assert ("--require-idle: GPU 1 is used by an unidentified process" in done.stderr) == (not planned)
    assert not (tmp_path / "runs").exists()


class Host:
    """A folder that stands for /proc, whose others work while somebody waits."""

    def __init__(self, proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.ticks, self.waited = proc, os.sysconf("SC_CLK_TCK"), 0.0
        monkeypatch.setattr(idle, "usable_cpus", lambda: (0, 1))
        clocks = {"perf_counter": lambda: self.waited, "process_time": lambda: self.waited / 4}
        stand_in = SimpleNamespace(sleep=self._sleep, **clocks)
        monkeypatch.setattr(idle, "time", stand_in)
        self.shares = {"gzip": 1.0, "make": 0.3, "idler": 0.01}
        self.tell()

    def tell(self, load: float = 3.4, running: int = 3) -> None:
        """What the host says after so many seconds; of two processes of one name the second rests."""
        (self.proc / "loadavg").parent.mkdir(parents=True, exist_ok=True)
        (self.proc / "loadavg").write_text(f"{load} 1.00 0.50 {running}/173 17898")
        busy = round(self.ticks * self.waited * (0.25 + sum(self.shares.values())))
        (self.proc / "stat").write_text(f"cpu  0 0\ncpu0 {busy} 0 0 900 7 0 0 5 0 0\ncpu1 9 9 9 900 7 0 0 5 0 0\n")
        for pid, (name, share) in enumerate([*self.shares.items(), ("gzip", 0.0)], start=1 << 30):
            (self.proc / str(pid)).mkdir(exist_ok=True)
            spent = round(self.ticks * self.waited * share)
            (self.proc / str(pid) / "stat").write_text(f"{pid} ({name}) R 1 1 1 0 -1 4 99 0 0 0 {spent} 0 0 0 20")

    def _sleep(self, seconds: float) -> None:
        self.waited += 100 * seconds  # so that ticks are fine enough
        self.tell()


@pytest.mark.parametrize(
    ("shares", "told", "disturbed"),
    [
        ({"gzip": 1.0, "make": 0.3, "idler": 0.01}, "1.3 of 2 CPUs (gzip 1.0, make 0.3), load 3.4", ("cpu", "cuda")),
        ({"gzip": 0.6}, "0.6 of 2 CPUs (gzip 0.6), load 3.4", ("cpu",)),
        ({"gzip": 0.2}, None, ()),
    ],
)
def test_others_on_the_cpus_are_measured_and_named_by_their_programs(tmp_path, monkeypatch, shares, told, disturbed):
    """Little is no disturbance, and less of one beside GPUs."""
    host = Host(tmp_path, monkeypatch)
    host.shares = shares
    use = idle.others_on_cpus(tmp_path)
    assert use is not None and (told is None or use.text == f"others use {told}")
    assert tuple(device for device in ("cpu", "cuda") if use.disturbs(device)) == disturbed


def test_nobody_waits_to_see_that_a_host_is_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(tmp_path, monkeypatch)
    host.tell(load=0.05, running=1)
    assert idle.others_on_cpus(tmp_path) is None and host.waited == 0
    host.tell(load=0.05, running=2)
    assert idle.others_on_cpus(tmp_path) is not None and host.waited > 0
    assert idle.others_on_cpus(tmp_path / "nothing") is None


@pytest.mark.parametrize("asked", [True, False])
def test_a_busy_machine_is_told_in_one_line_unless_it_is_to_be_idle(asked, monkeypatch, capsys):
    use = idle.OthersUse(cpus=2, others=1.7, load=3.4, programs=(("gzip", 1.2), ("make", 0.5)))
    monkeypatch.setattr(idle, "others_on_cpus", lambda: use)
    machine = planning.Machine(python="python", device="cpu", max_ranks=2, device_memory_bytes=None)
    Where(require_idle=asked).warn_if_busy(machine, LocalLauncher())
    told = " ".join(capsys.readouterr().err.split())
    line = "warning: this machine is busy: others use 1.7 of 2 CPUs (gzip 1.2, make 0.5), load 3.4; runs that this"
    assert told == "" if asked else told.startswith(line)
