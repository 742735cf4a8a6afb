"""Counters of the kernel around an iteration, read from a folder that stands for /proc and /sys."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from suite.bundle.event_fields import Iteration, wrong_field
from suite.worker.noise import NoiseProbe, cpu_seconds, limiting_cgroups
from tests.synthetic import rank_events, synthetic_manifest
from tests.worker.written import write

STAT = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 {} 5 10 900 7 1 2 {} 0 0\ncpu1 100 0 0 900 0 0 0 0 0 0\nintr 1 2 3\n"
TICK = 1 / os.sysconf("SC_CLK_TCK")


class Machine:
    """Folders with what a kernel would tell; a test writes over it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.sys = root / "proc", root / "sys"
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
        self.write("thread-self/schedstat", "900 5000000000 17")
        self.write("stat", STAT.format(200, 40))
        self.write("loadavg", "3.25 1.00 0.50 4/173 17898")
        self.write("pressure/cpu", "some avg10=84.74 avg60=87.34 avg300=67.18 total=2000000\nfull avg10=0 total=9\n")

    def write(self, name: str, text: str, below: str = "proc") -> None:
        write(getattr(self, below), {name: text})

    def probe(self, tells_host: bool = True) -> NoiseProbe:
        return NoiseProbe(tells_host, str(self.proc), str(self.sys))


def is_taken(noise: dict[str, Any]) -> bool:
    iteration = next(event for event in rank_events(synthetic_manifest(), 0, lambda *_: 1.0) if "stats" in event)
    return wrong_field({**iteration, "noise": noise}, Iteration) is None


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_a_window_has_what_each_counter_grew_by(machine: Machine) -> None:
    probe = machine.probe()
    probe.open_window()
    machine.write("thread-self/schedstat", "901 5250000000 18")
    machine.write("stat", STAT.format(260, 44))
    machine.write("pressure/cpu", "some avg10=84.74 avg60=87.34 avg300=67.18 total=2500000\n")
    noise = probe.close_window()
    assert noise["cpu_wait_seconds"] == 0.25
    assert noise["host"]["busy_seconds"] == pytest.approx(60 * TICK)
    assert noise["host"]["steal_seconds"] == pytest.approx(4 * TICK)
    assert noise["host"]["cpu_pressure_seconds"] == 0.5
    assert (noise["host"]["load"], noise["host"]["runnable"], noise["host"]["cpus"]) == (3.25, 4, 2)
    assert is_taken(noise), "what the worker writes, the reader takes"


def test_what_a_machine_does_not_tell_is_null_not_zero(tmp_path: Path) -> None:
    probe = NoiseProbe(True, str(tmp_path / "proc"), str(tmp_path / "sys"))
    probe.open_window()
    noise = probe.close_window()
    host = noise.pop("host")
    unknown = {"cpu_wait_seconds", "throttled_periods", "throttled_seconds", "cpu_mhz"}
    assert {name for name, value in noise.items() if value is None} == unknown
    assert {name for name, value in host.items() if value is not None} == {"cpus"}


def test_a_counter_that_goes_back_tells_nothing(machine: Machine) -> None:
    probe = machine.probe()
    probe.open_window()
    machine.write("stat", STAT.format(260, 39))
    host = probe.close_window()["host"]
    assert host["busy_seconds"] and host["steal_seconds"] is None


def test_a_rank_that_is_not_the_first_of_its_host_leaves_the_host_to_it(machine: Machine) -> None:
    probe = machine.probe(tells_host=False)
    probe.open_window()
    assert "host" not in probe.close_window()


def test_only_the_cpus_that_a_process_may_use_are_counted() -> None:
    stat = STAT.format(200, 40).encode()
    busy, stolen = cpu_seconds(stat, {1})
    assert (busy, stolen) == (100 * TICK, 0.0)
    assert cpu_seconds(stat, {0, 7}) == (None, None)
    assert cpu_seconds(b"", {0}) == (None, None)


def test_a_limit_on_cpu_time_is_found_in_any_group_above_and_its_throttling_told(machine: Machine) -> None:
    machine.write("self/cgroup", "3:cpuset:/\n0::/pod/container\n")
    machine.write("fs/cgroup/pod/cpu.max", "150000 100000", below="sys")
    machine.write("fs/cgroup/pod/container/cpu.max", "max 100000", below="sys")
    stat = "usage_usec 5\nnr_periods 10\nnr_throttled {}\nthrottled_usec {}\n"
    machine.write("fs/cgroup/pod/cpu.stat", stat.format(3, 40_000), below="sys")
    probe = machine.probe()
    probe.open_window()
    machine.write("fs/cgroup/pod/cpu.stat", stat.format(5, 90_000), below="sys")
    noise = probe.close_window()
    assert (noise["throttled_periods"], noise["throttled_seconds"]) == (2, 0.05)


def test_older_control_groups_and_those_of_a_container_are_found(machine: Machine) -> None:
    machine.write("self/cgroup", "4:cpu,cpuacct:/docker/0123\n")
    machine.write("fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000", below="sys")
    root = machine.sys / "fs" / "cgroup" / "cpu,cpuacct"
    assert limiting_cgroups(str(machine.proc), str(machine.sys)) == [str(root / "cpu.stat")]
    machine.write("fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1", below="sys")
    assert limiting_cgroups(str(machine.proc), str(machine.sys)) == []


def test_this_machine_tells_how_much_cpu_the_thread_had() -> None:
    probe = NoiseProbe(True)
    probe.open_window()
    before = time.thread_time()
    while time.thread_time() == before:
        pass
    noise = probe.close_window()
    assert noise["thread_cpu_seconds"] > 0
    assert is_taken(noise)
