"""The processes that a trainer starts for itself: what they take of this node's memory and processor time."""

import os
import threading
import time
from contextlib import suppress
from typing import Any, Dict, List, Optional, Set

_TICKS = os.sysconf("SC_CLK_TCK")
_RESET_PEAK = b"5"  # proc(5), /proc/pid/clear_refs
_SAMPLE_SECONDS = 0.05


def below(pid: int) -> List[int]:
    """Ids of all processes below this one, by the parents that the kernel tells now."""
    children: Dict[int, List[int]] = {}
    for each in map(int, filter(str.isdigit, os.listdir("/proc"))):
        fields = _stat(each)
        if fields:
            children.setdefault(int(fields[1]), []).append(each)
    found = [pid]
    for each in found:  # which grows
        found += children.get(each, ())
    return found[1:]


class Processes:
    """All processes below ``guardian``, which keeps those of one node together; ``refresh`` before figures are read."""

    def __init__(self, guardian: int) -> None:
        self._guardian = guardian
        self._pids: List[int] = []
        self._ended_seconds = 0.0
        self._seconds: Dict[int, float] = {}
        self.refresh()

    def refresh(self) -> None:
        self._pids = below(self._guardian)

    def cpu_seconds(self) -> float:
        """Processor time that all of them have taken since they were first seen here, those that ended too."""
        self.refresh()
        found = {pid: _stat(pid) for pid in self._pids}
        now = {pid: (int(fields[11]) + int(fields[12])) / _TICKS for pid, fields in found.items() if fields}
        self._ended_seconds += sum(seconds for pid, seconds in self._seconds.items() if pid not in now)
        self._seconds = now
        return self._ended_seconds + sum(now.values())

    def reset_peaks(self) -> None:
        """Let every process's peak resident set start again from its current one."""
        for pid in self._pids:
            with suppress(OSError), open("/proc/{}/clear_refs".format(pid), "wb") as file:
                file.write(_RESET_PEAK)

    def peak_resident_bytes(self) -> int:
        """Sum of the peak resident sets since the last reset; pages that processes share count in each."""
        return sum(map(_peak, self._pids))


class NodeMemory:
    """Peaks of a rank whose work is done by other processes of its node; the interface of ``MemoryProbe``.

    On a CPU a rank's peak is an even share of what all of the trainer's processes on the node hold. On CUDA it is what
    the whole device uses at most, sampled while the phase runs, because engines that sleep give memory back before it
    ends; how much of that is allocated no other process can tell.
    """

    def __init__(self, processes: Optional[Processes], ranks: int, resets: bool, gpu: Any) -> None:
        """``ranks`` share the node; one of them ``resets``. ``gpu``: an ``NvmlGpu``, None on a CPU or if unknown."""
        self._processes, self._ranks, self._resets = processes, ranks, resets
        self._gpu = gpu
        self._used: Optional[int] = None
        self.refresh()
        if gpu is not None:
            threading.Thread(target=self._sample, name="memory-sampler", daemon=True).start()

    def reset(self) -> None:
        if self._processes is not None and self._resets:
            self._processes.reset_peaks()
        self._used = None
        self._note()

    def refresh(self) -> None:
        if self._processes is not None:
            self._processes.refresh()

    def forget_setup(self) -> None:
        self.refresh()
        self.reset()

    def peaks(self) -> Dict[str, Optional[int]]:
        self._note()
        resident = None if self._processes is None else self._processes.peak_resident_bytes() // self._ranks
        return {
            "peak_allocated_bytes": None,
            "peak_reserved_bytes": None,
            "peak_device_bytes": self._used,
            "peak_resident_bytes": resident,
            "allocation_retries": None,
        }

    def _note(self) -> None:
        used = None if self._gpu is None else self._gpu.used_bytes()
        if used is not None:
            self._used = max(used, self._used or 0)

    def _sample(self) -> None:
        while True:
            time.sleep(_SAMPLE_SECONDS)
            self._note()


def kill_below(pid: int) -> None:
    """Kill all processes below this one, and what they start meanwhile."""
    for _ in range(20):
        left = [each for each in below(pid) if _stat(each)[:1] not in ([], ["Z"])]
        if not left:
            return
        for each in left:
            with suppress(ProcessLookupError):
                os.kill(each, 9)
        time.sleep(0.05)


def shared_memory_below(pid: int) -> Set[int]:
    """Files of /dev/shm that processes below this one have mapped, by inode."""
    return set().union(*map(_shared_memory, below(pid)))


def _stat(pid: int) -> List[str]:
    """Fields of /proc/pid/stat from the state on (proc(5), field 3); empty for a process that is gone."""
    return _read(pid, "stat").rpartition(b")")[2].decode().split()


def _peak(pid: int) -> int:
    """0 of a process that is gone, or a zombie."""
    text = _read(pid, "status")
    return int(text.split(b"\nVmHWM:", 1)[1].split(None, 1)[0]) * 1024 if b"\nVmHWM:" in text else 0


def _shared_memory(pid: int) -> Set[int]:
    """Files of /dev/shm in the maps of a process (proc(5)). By inode, because a semaphore is mapped before it has the
    name under which it stays."""
    return {int(line.split()[4]) for line in _read(pid, "maps").splitlines() if b" /dev/shm/" in line}


def _read(pid: int, name: str) -> bytes:
    """A file of /proc/pid; empty for a process that is gone."""
    try:
        with open("/proc/{}/{}".format(pid, name), "rb") as file:
            return file.read()
    except OSError:
        return b""
