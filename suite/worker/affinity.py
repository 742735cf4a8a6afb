"""Where a rank runs: on the CPUs near its GPU, so that memory it touches first is near too (Linux places it there).

The kernel says which CPUs are near a device (``local_cpulist`` of its PCI address). Ranks whose GPUs have the same CPUs
near share them by whole cores.
"""

import os
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Tuple

from suite.worker.process import read_text

_SYS = "/sys"
_TASKS = "/proc/self/task"
Cpus = FrozenSet[int]


def bind(gpus: Sequence[Any], local_rank: int, sys: str = _SYS) -> Dict[str, Any]:
    """Bind this process with all its threads; the ``affinity`` facts.

    ``gpus``: for each local rank what tells of its GPU, as ``suite.worker.nvml.NvmlGpu``, or None. Where nothing is
    known, nothing is changed.
    """
    allowed = frozenset(os.sched_getaffinity(0))
    places = [near(gpu, sys) for gpu in gpus]
    cpus, ranks, how = choose([near_cpus for near_cpus, _ in places], local_rank, allowed, sys)
    if cpus != allowed:
        for task in os.listdir(_TASKS):
            try:
                os.sched_setaffinity(int(task), cpus)
            except OSError:  # a thread that has ended, or a sandbox that forbids it
                if int(task) == os.getpid():
                    return left_alone("the system does not allow it", len(gpus))
    return _facts(cpus, ranks, places[local_rank][1], how)


def left_alone(reason: str, ranks: int) -> Dict[str, Any]:
    """The ``affinity`` facts of a rank that is not bound, one of ``ranks`` on its node."""
    return _facts(frozenset(os.sched_getaffinity(0)), ranks, None, "left alone: " + reason)


def _facts(cpus: Cpus, ranks: int, numa_node: Optional[int], how: str) -> Dict[str, Any]:
    return {"cpus": as_list(cpus), "ranks": ranks, "numa_node": numa_node, "how": how}


def near(gpu: Any, sys: str = _SYS) -> Tuple[Cpus, Optional[int]]:
    """The CPUs near a GPU, none where that is not known, and its NUMA node."""
    address = gpu and gpu.pci_address()
    folder = os.path.join(sys, "bus", "pci", "devices", address or "unknown")
    return read_list(os.path.join(folder, "local_cpulist")), numa_node(folder)


def numa_node(device: str) -> Optional[int]:
    """Of a device's folder in /sys. The kernel has -1 where it does not know."""
    number = read_text(os.path.join(device, "numa_node")) or ""
    return int(number) if number.isdecimal() else None


def choose(near_cpus: Sequence[Cpus], local_rank: int, allowed: Cpus, sys: str = _SYS) -> Tuple[Cpus, int, str]:
    """The CPUs of a local rank, how many ranks run on them, and in words how they were chosen.

    Whole cores only (hyperthread siblings stay together), cut to what the process is ``allowed`` to use.
    """
    mine = near_cpus[local_rank] & allowed
    if not near_cpus[local_rank]:
        return allowed, len(near_cpus), "left alone: nobody says which CPUs are near the GPU"
    if not mine:
        return allowed, len(near_cpus), "left alone: no CPU near the GPU is allowed here"
    sharing = [rank for rank, cpus in enumerate(near_cpus) if cpus & allowed == mine]
    cores = cores_of(mine, sys)
    if len(cores) < len(sharing):
        return mine, len(sharing), "near the GPU, shared: fewer cores than ranks"
    index = sharing.index(local_rank)
    first, last = index * len(cores) // len(sharing), (index + 1) * len(cores) // len(sharing)
    part = frozenset(cpu for core in cores[first:last] for cpu in core)
    return part, 1, "near the GPU, its cores divided among ranks: " + str(len(sharing))


def cores_of(cpus: Cpus, sys: str = _SYS) -> List[Cpus]:
    """The CPUs by core, in order of their first."""
    cores = {}
    for cpu in sorted(cpus):
        path = os.path.join(sys, "devices", "system", "cpu", "cpu{}".format(cpu), "topology", "thread_siblings_list")
        core = (read_list(path) or frozenset((cpu,))) & cpus
        cores.setdefault(min(core), core)
    return [cores[first] for first in sorted(cores)]


def read_list(path: str) -> Cpus:
    """The numbers of a kernel's list such as ``0-3,8``; none where it cannot be read."""
    text = read_text(path)
    if not text or not set(text) <= set("0123456789,-"):
        return frozenset()
    numbers = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return frozenset(numbers)


def as_list(cpus: Cpus) -> str:
    """As the kernel writes lists."""
    runs: List[List[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][-1] + 1:
            runs[-1].append(cpu)
        else:
            runs.append([cpu])
    return ",".join(str(run[0]) if len(run) == 1 else "{}-{}".format(run[0], run[-1]) for run in runs)
