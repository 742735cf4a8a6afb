"""What disturbs an iteration: who else had its CPUs, how often it lost them, and what the kernel held back.

Counters of the kernel are read before an iteration and behind it, never within. What a machine does not tell is None.
"""

import os
import re
import resource
import time
from typing import Any, Callable, Dict, List, Optional, Tuple

from suite.worker.process import read_open, read_text

_PROC, _SYS = "/proc", "/sys"
_TICKS = os.sysconf("SC_CLK_TCK")
_CPU_LINE = re.compile(rb"cpu(\d+) (.+)")
#: Columns of a line of /proc/stat (proc(5)): user nice system idle iowait irq softirq steal
_BUSY_COLUMNS, _STEAL_COLUMN = (0, 1, 2, 5, 6), 7
_PRESSURE = re.compile(rb"some .{0,200}total=(\d+)")
Figures = Dict[str, Any]


class NoiseProbe:
    """Of this rank, and where it ``tells_host`` of that: one rank of each does. Used by the thread it is about."""

    def __init__(self, tells_host: bool, proc: str = _PROC, sys: str = _SYS) -> None:
        self._tells_host, self._proc = tells_host, proc
        self._throttles = limiting_cgroups(proc, sys)
        self._cpus = frozenset(os.sched_getaffinity(0))
        self._clock = os.path.join(sys, "devices", "system", "cpu", "cpu{}", "cpufreq", "scaling_cur_freq")
        self._opened: Figures = {}
        self._others_cpu_seconds: Callable[[], float] = float

    def count_processes(self, cpu_seconds: Callable[[], float]) -> None:
        """``cpu_seconds`` of other processes that do this rank's work count as its own."""
        self._others_cpu_seconds = cpu_seconds

    def open_window(self) -> None:
        self._opened = self._counters()

    def close_window(self) -> Figures:
        """What happened since ``open_window``: the ``noise`` field of an ``iteration`` event."""
        figures = _differences(self._opened, self._counters())
        figures["cpu_mhz"] = self._cpu_mhz()
        if self._tells_host:
            figures["host"].update(self._host_state())
        return figures

    def _counters(self) -> Figures:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        waited = _numbers(self._read("thread-self/schedstat"))
        counters: Figures = {
            "seconds": time.perf_counter(),
            "cpu_seconds": time.process_time() + self._others_cpu_seconds(),
            "thread_cpu_seconds": time.thread_time(),
            "cpu_wait_seconds": waited[1] / 1e9 if len(waited) > 1 else None,
            "involuntary_switches": usage.ru_nivcsw,
            "voluntary_switches": usage.ru_nvcsw,
            "major_faults": usage.ru_majflt,
            "minor_faults": usage.ru_minflt,
        }
        counters.update(_throttled([read_open(path) for path in self._throttles]))
        if self._tells_host:
            counters["host"] = self._host_counters()
        return counters

    def _host_counters(self) -> Figures:
        """The CPUs that this process may run on, whoever uses them, and how long tasks of this host stood still."""
        busy, stolen = cpu_seconds(self._read("stat"), self._cpus)
        counters: Figures = {"busy_seconds": busy, "steal_seconds": stolen}
        for name in ("cpu", "memory"):
            found = _PRESSURE.match(self._read("pressure/" + name))
            counters[name + "_pressure_seconds"] = int(found.group(1)) / 1e6 if found else None
        return counters

    def _host_state(self) -> Figures:
        """What is no counter: the load of the last minute, and how many threads want a CPU right now, this one too."""
        words = self._read("loadavg").split()
        runnable = words[3].partition(b"/")[0] if len(words) > 3 else b""
        return {
            "cpus": len(self._cpus),
            "load": float(words[0]) if words else None,
            "runnable": int(runnable) if runnable.isdigit() else None,
        }

    def _cpu_mhz(self) -> Optional[float]:
        """The clock of the CPU that the asking thread runs on."""
        words = self._read("thread-self/stat").rpartition(b")")[2].split()
        # proc(5): field 39, the CPU it last ran on; the first two are cut off
        found = _numbers(read_open(self._clock.format(int(words[36])))) if len(words) > 36 else []
        return found[0] / 1000 if found else None

    def _read(self, name: str) -> bytes:
        return read_open(os.path.join(self._proc, name))


def cpu_seconds(stat: bytes, cpus: Any) -> Tuple[Optional[float], Optional[float]]:
    """Of a text of /proc/stat: how long these ``cpus`` worked, and how long their hypervisor kept them from it.

    None where one of them is not in it.
    """
    ticks = {int(number): _numbers(rest) for number, rest in _CPU_LINE.findall(stat)}
    own = [ticks.get(cpu, []) for cpu in cpus]
    if not own or any(len(columns) <= _STEAL_COLUMN for columns in own):
        return None, None
    busy = sum(columns[index] for columns in own for index in _BUSY_COLUMNS)
    return busy / _TICKS, sum(columns[_STEAL_COLUMN] for columns in own) / _TICKS


def limiting_cgroups(proc: str = _PROC, sys: str = _SYS) -> List[str]:
    """Files that count how often a limit on CPU time held this process back: of its control groups with a limit."""
    found = []
    for line in (read_text(os.path.join(proc, "self", "cgroup")) or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number != "0" and "cpu" not in controllers.split(","):
            continue
        folder = os.path.join(sys, "fs", "cgroup", "" if number == "0" else controllers)
        # In a container the path may be the host's, whose folders are not there; its own root is what it sees then.
        for name in ("", *filter(None, path.split("/"))):
            folder = os.path.join(folder, name) if name else folder
            if name == ".." or not os.path.isdir(folder):
                break
            if _has_limit(folder):
                found.append(os.path.join(folder, "cpu.stat"))
    return found


def _has_limit(folder: str) -> bool:
    limits = (read_text(os.path.join(folder, name)) for name in ("cpu.max", "cpu.cfs_quota_us"))
    return any(limit and limit.split()[0].isdigit() for limit in limits)


def _throttled(texts: List[bytes]) -> Figures:
    """Over all groups with a limit; None where there is none, or one does not tell."""
    periods, seconds = 0, 0.0
    for text in texts:
        told = {line.split()[0]: line.split()[-1] for line in text.splitlines() if line.split()}
        micro, nano = told.get(b"throttled_usec"), told.get(b"throttled_time")  # new groups and old ones
        if b"nr_throttled" not in told or (micro is None and nano is None):
            return {"throttled_periods": None, "throttled_seconds": None}
        periods += int(told[b"nr_throttled"])
        seconds += int(nano or 0) / 1e9 if micro is None else int(micro) / 1e6
    return {"throttled_periods": periods if texts else None, "throttled_seconds": seconds if texts else None}


def _differences(before: Figures, after: Figures) -> Figures:
    """By how much each counter has grown; None where it is not told, or went back and so tells nothing."""
    grown: Figures = {}
    for name, value in after.items():
        first = before.get(name)
        if isinstance(value, dict):
            grown[name] = _differences(first or {}, value)
        else:
            grown[name] = None if value is None or first is None or value < first else round(value - first, 9)
    return grown


def _numbers(text: bytes) -> List[int]:
    return [int(word) for word in text.split() if word.isdigit()]
