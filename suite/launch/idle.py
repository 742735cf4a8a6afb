"""What else uses the devices of this host: asked by the driver before it starts anything that wants them alone."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from suite.launch.probe import nvml_of_this_host, usable_cpus
from suite.spec.base import UsageError

#: what ranks are told, so that they look again on the node where they run (suite.worker.devices)
REQUIRE_IDLE = {"SUITE_REQUIRE_IDLE": "1"}
#: as the ranks have it: what a driver may keep for itself, and what is no work
_USED_BYTES, _UTILISATION_PERCENT = 1 << 30, 10
#: of the CPUs: beyond it `suite doctor` warns too
_LOAD_SHARE = 0.5
#: What others may use before a run on CPUs is said to be disturbed: CPUs, and a share of all there are.
_OTHERS_CPUS, _OTHERS_SHARE = 0.25, 0.05
_SAMPLE_SECONDS = 0.2
#: A program that uses less of a CPU goes unnamed, as do all but the busiest.
_NAMED_CPUS, _MOST_NAMED = 0.05, 3


@dataclass(frozen=True)
class OthersUse:
    """How many of the CPUs that this process may use others keep busy, and by which programs, busiest first."""

    cpus: int
    others: float
    load: float  # of the last minute
    programs: tuple[tuple[str, float], ...]

    def disturbs(self, device: str) -> bool:
        """Whether runs on ``device`` would suffer: ranks on GPUs leave CPUs free."""
        if device != "cpu":
            return self.others > _LOAD_SHARE * self.cpus
        return self.others > max(_OTHERS_CPUS, _OTHERS_SHARE * self.cpus)

    @property
    def text(self) -> str:
        """``others use 1.7 of 2 CPUs (gzip 1.2, make 0.5), load 3.4``."""
        named = ", ".join(f"{name} {cpus:.1f}" for name, cpus in self.programs)
        return f"others use {self.others:.1f} of {self.cpus} CPUs{f' ({named})' if named else ''}, load {self.load:.1f}"


def require_idle_gpus(uuids: Sequence[str]) -> None:
    """Raises UsageError, with every process that computes on one of these GPUs or holds their memory. A GPU that the
    driver does not know by this name, such as a slice, is left to the ranks."""
    busy = list(_occupants(uuids))
    if busy:
        raise UsageError(f"--require-idle: {'; '.join(busy)}; wait for it to end, or choose other GPUs with --gpu-ids")


def require_idle_cpus() -> None:
    """Raises UsageError where more than half of the CPUs have had work in the last minute."""
    cpus, load = len(usable_cpus()), os.getloadavg()[0]
    if load > _LOAD_SHARE * cpus:
        raise UsageError(
            f"--require-idle: the load of the last minute is {load:.1f} on {cpus} CPUs; wait, or leave the option out"
        )


def others_on_cpus(proc: Path = Path("/proc"), seconds: float = _SAMPLE_SECONDS) -> OthersUse | None:
    """What others do right now; null where nobody else has work, which takes no time to see, or nothing is told."""
    cpus = usable_cpus()
    try:
        words = (proc / "loadavg").read_text().split()
        load, running = float(words[0]), int(words[3].partition("/")[0])  # of the last minute; threads that want a CPU
        if load <= _OTHERS_CPUS and running <= 1:
            return None
        before, own = _program_ticks(proc), time.process_time()
        began, busy = time.perf_counter(), _busy_seconds(proc, cpus)
        time.sleep(seconds)
        used = _busy_seconds(proc, cpus) - busy - (time.process_time() - own)
        elapsed = time.perf_counter() - began
        grown: Counter[str] = Counter()
        for pid, (name, ticks) in _program_ticks(proc).items():
            grown[name] += ticks - before.get(pid, ("", 0))[1]
    except (OSError, ValueError, IndexError):
        return None
    programs = [(name, ticks / os.sysconf("SC_CLK_TCK") / elapsed) for name, ticks in grown.most_common(_MOST_NAMED)]
    named = tuple((name, share) for name, share in programs if share >= _NAMED_CPUS)
    return OthersUse(cpus=len(cpus), others=min(max(0.0, used / elapsed), len(cpus)), load=load, programs=named)


def busy_now(device: str, uuids: Sequence[str]) -> str | None:
    """What would disturb runs on ``device`` (with GPUs: these) that started now; null where nothing would."""
    use = others_on_cpus()
    found = list(_occupants(uuids)) if device == "cuda" else []
    if use is not None and use.disturbs(device):
        found.append(use.text)
    return "; ".join(found) or None


def _busy_seconds(proc: Path, cpus: Sequence[int]) -> float:
    """How long these CPUs have worked: all but idle, waiting for a disk, and what a hypervisor took (proc(5))."""
    lines = (
        line.split() for line in (proc / "stat").read_text().splitlines() if line[:3] == "cpu" and line[3:4].isdigit()
    )
    ticks = {words[0]: [int(words[column]) for column in (1, 2, 3, 6, 7)] for words in lines}
    return sum(sum(ticks.get(f"cpu{cpu}", ())) for cpu in cpus) / os.sysconf("SC_CLK_TCK")


def _program_ticks(proc: Path) -> dict[int, tuple[str, int]]:
    """Of every process but this one its program's name, and the CPU time that it has had."""
    found = {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError, ValueError, IndexError):
                head, _, rest = (entry / "stat").read_text(errors="replace").rpartition(")")
                words = rest.split()
                name = ascii(head.partition("(")[2])[1:-1]
                found[int(entry.name)] = (name, int(words[11]) + int(words[12]))
    return found


def _occupants(uuids: Sequence[str]) -> Iterator[str]:
    with nvml_of_this_host() as nvml:
        if nvml is None:
            return
        for uuid in uuids:
            with suppress(nvml.NVMLError):
                handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
                lines = list(_occupants_of(nvml, handle))
                if lines:
                    yield f"GPU {nvml.nvmlDeviceGetIndex(handle)} is used by {', '.join(lines)}"


def _occupants_of(nvml: ModuleType, handle: Any) -> Iterator[str]:
    """The processes, or where none is shown, that something is there."""
    running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    for process in running:
        held = "" if process.usedGpuMemory is None else f" with {process.usedGpuMemory / 2**30:.1f} GiB"
        name = ""
        with suppress(OSError):  # where this host shows it
            name = f" ({ascii(Path(f'/proc/{process.pid}/comm').read_text().strip())[1:-1]})"
        yield f"process {process.pid}{name}{held}"
    if not running:
        used = nvml.nvmlDeviceGetMemoryInfo(handle).used
        with suppress(nvml.NVMLError):  # as CUDA counts them; of an older driver with what it keeps for itself
            used = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used
        if used > _USED_BYTES:
            yield f"an unidentified process using {used / 2**30:.1f} GiB"
        busy = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        if busy > _UTILISATION_PERCENT:
            yield f"an unidentified process, {busy} % of the time"
