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
KERNEL = {
    "proc/thread-self/schedstat": "900 5000000000 17",
    "proc/stat": STAT.format(200, 40),
    "proc/loadavg": "3.25 1.00 0.50 4/173 17898",
    "proc/pressure/cpu": "some avg10=84.74 avg60=87.34 avg300=67.18 total=2000000\nfull avg10=0 total=9\n",
}


def window(root: Path, files: dict[str, str], tells_host: bool = True) -> dict[str, Any]:
    """What a probe tells of a window in which these files became others."""
    probe = NoiseProbe(tells_host, str(root / "proc"), str(root / "sys"))
    probe.open_window()
    write(root, files)
    return probe.close_window()


def is_taken(noise: dict[str, Any]) -> bool:
    iteration = next(event for event in rank_events(synthetic_manifest(), 0, lambda *_: 1.0) if "stats" in event)
    return wrong_field({**iteration, "noise": noise}, Iteration) is None


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what a kernel would tell."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    return write(tmp_path, KERNEL)


def test_a_window_has_what_each_counter_grew_by(machine):
    pressure = "some avg10=84.74 avg60=87.34 avg300=67.18 total=2500000\n"
    counters = {"proc/thread-self/schedstat": "901 5250000000 18", "proc/stat": STAT.format(260, 44)}
    noise = window(machine, {**counters, "proc/pressure/cpu": pressure})
    assert noise["cpu_wait_seconds"] == 0.25
    assert noise["host"]["busy_seconds"] == pytest.approx(60 * TICK)
    assert noise["host"]["steal_seconds"] == pytest.approx(4 * TICK)
    assert noise["host"]["cpu_pressure_seconds"] == 0.5
    assert (noise["host"]["load"], noise["host"]["runnable"], noise["host"]["cpus"]) == (3.25, 4, 2)
    assert is_taken(noise), "what the worker writes, the reader takes"


def test_what_a_machine_does_not_tell_is_null_not_zero(tmp_path):
    noise = window(tmp_path, {})
    host = noise.pop("host")
    unknown = {"cpu_wait_seconds", "throttled_periods", "throttled_seconds", "cpu_mhz"}
    assert {name for name, value in noise.items() if value is None} == unknown
    assert {name for name, value in host.items() if value is not None} == {"cpus"}


def test_a_counter_that_goes_back_tells_nothing(machine):
    host = window(machine, {"proc/stat": STAT.format(260, 39)})["host"]
    assert host["busy_seconds"] and host["steal_seconds"] is None


def test_a_rank_that_is_not_the_first_of_its_host_leaves_the_host_to_it(machine):
    assert "host" not in window(machine, {}, tells_host=False)


def test_only_the_cpus_that_a_process_may_use_are_counted() -> None:
    stat = STAT.format(200, 40).encode()
    busy, stolen = cpu_seconds(stat, {1})
    assert (busy, stolen) == (100 * TICK, 0.0)
    assert cpu_seconds(stat, {0, 7}) == (None, None)
    assert cpu_seconds(b"", {0}) == (None, None)


def test_a_limit_on_cpu_time_is_found_in_any_group_above_and_its_throttling_told(machine):
    limits = {"sys/fs/cgroup/pod/cpu.max": "150000 100000", "sys/fs/cgroup/pod/container/cpu.max": "max 100000"}
    stat = "usage_usec 5\nnr_periods 10\nnr_throttled {}\nthrottled_usec {}\n"
    first, later = ({"sys/fs/cgroup/pod/cpu.stat": stat.format(*told)} for told in ((3, 40_000), (5, 90_000)))
    write(machine, {"proc/self/cgroup": "3:cpuset:/\n0::/pod/container\n", **limits, **first})
    noise = window(machine, later)
    assert (noise["throttled_periods"], noise["throttled_seconds"]) == (2, 0.05)


@pytest.mark.parametrize(("quota", "found"), [("50000", ["fs/cgroup/cpu,cpuacct/cpu.stat"]), ("-1", [])])
def test_older_control_groups_and_those_of_a_container_are_found(machine, quota, found):
    limit = {"sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": quota}
    write(machine, {"proc/self/cgroup": "4:cpu,cpuacct:/docker/0123\n", **limit})
    assert limiting_cgroups(f"{machine}/proc", f"{machine}/sys") == [f"{machine}/sys/{path}" for path in found]


def test_this_machine_tells_how_much_cpu_the_thread_had() -> None:
    probe = NoiseProbe(True)
    probe.open_window()
    before = time.thread_time()
    while time.thread_time() == before:
        pass
    noise = probe.close_window()
    assert noise["thread_cpu_seconds"] > 0
    assert is_taken(noise)
