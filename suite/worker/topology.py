"""What connects the devices of this node, and which CPUs are near them, as driver and kernel tell it.

What is unknown is None. A rank can be bound to the CPUs near its GPU, so that memory it touches first is near too
(Linux places it there). Ranks whose GPUs have the same CPUs near share them by whole cores.
"""

import glob
import os
import re
from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Tuple

import torch

from suite.worker.nvml import NvmlGpu, find_gpu, pci_address
from suite.worker.process import read_text
from suite.worker.world import World

_MOST_ADAPTERS, _MOST_INTERFACES = 64, 32
#: nvmlDeviceGetP2PStatus: whether one device may read another's memory, and whether by NVLink (nvml.h,
#: nvmlGpuP2PCapsIndex_t; pynvml has had the first one as a tuple)
_P2P, _REACHED = {"read": 0, "nvlink": 2}, 0
#: nvml.h: NVML_NVLINK_MAX_LINKS and nvmlIntNvLinkDeviceType_t
_MOST_LINKS, _SWITCH, _GPU = 36, 2, 0
_SYS = "/sys"
Cpus = FrozenSet[int]


def collect_topology(world: World, root: str = "/") -> Optional[Dict[str, Any]]:
    """The facts ``topology`` of docs/contracts.md, told once for a node: None on its other ranks."""
    if world.local_rank != 0:
        return None
    modules = read_text(os.path.join(root, "proc/modules"))
    return {
        "gpus": _gpus(world, root),
        "adapters": _adapters(root),
        "interfaces": _interfaces(root),
        "nvidia_peermem": None if modules is None else bool(re.search(r"^nvidia_peermem ", modules, re.MULTILINE)),
    }


def _gpus(world: World, root: str) -> Optional[List[Dict[str, Any]]]:
    """The GPUs of this node's ranks, by local rank; None on a CPU and where NVML does not tell them apart."""
    if world.device.type != "cuda":
        return None
    gpus = [find_gpu(rank) for rank in range(min(world.local_world_size, torch.cuda.device_count()))]
    return None if None in gpus else describe_gpus(gpus, root)


def describe_gpus(gpus: List[NvmlGpu], root: str) -> List[Dict[str, Any]]:
    """Each GPU's place, PCIe link and NVLinks. ``peers``: how many of the other GPUs it reaches, and how."""
    places = [gpu.pci_address() for gpu in gpus]
    found = []
    for gpu, place in zip(gpus, places):
        others = [other for other in gpus if other is not gpu]
        found.append(
            {
                "pci": place,
                "numa_node": numa_node(os.path.join(root, "sys/bus/pci/devices", place)) if place else None,
                "pcie": {
                    "generation": gpu.ask("CurrPcieLinkGeneration"),
                    "max_generation": gpu.ask("MaxPcieLinkGeneration"),
                    "width": gpu.ask("CurrPcieLinkWidth"),
                    "max_width": gpu.ask("MaxPcieLinkWidth"),
                },
                "nvlinks": _nvlinks(gpu, [one for one in places if one]),
                "peers": {"others": len(others), **{how: _reached(gpu, others, code) for how, code in _P2P.items()}},
            }
        )
    return found


def _nvlinks(gpu: NvmlGpu, places: List[str]) -> Optional[Dict[str, Any]]:
    """Links that the device has, how many are up, and how many of those lead to a switch or to one of ``places``;
    None where it has no such links."""
    states = [gpu.ask("NvLinkState", link) for link in range(_MOST_LINKS)]
    known = [state for state in states if state is not None]
    if not known:
        return None
    active = [link for link, state in enumerate(states) if state]
    ends = [_leads_to(gpu, link) for link in active]
    return {
        "links": len(known),
        "active": len(active),
        "to_ranks": None if None in ends else sum(end == "switch" or end in places for end in ends),
        "version": gpu.ask("NvLinkVersion", active[0]) if active else None,
    }


def _leads_to(gpu: NvmlGpu, link: int) -> Optional[str]:
    """``switch``, ``other``, or the place of the GPU at the other end of a link that is up; None where unknown."""
    kind = gpu.ask("NvLinkRemoteDeviceType", link)
    if kind == _GPU:
        return pci_address(gpu.ask("NvLinkRemotePciInfo", link))
    return None if kind is None else "switch" if kind == _SWITCH else "other"


def _reached(gpu: NvmlGpu, others: List[NvmlGpu], how: int) -> Optional[int]:
    states = [gpu.ask("P2PStatus", other.handle, how) for other in others]
    return None if None in states else states.count(_REACHED)


def _adapters(root: str) -> List[Dict[str, Any]]:
    """Ports of InfiniBand, RoCE and EFA adapters."""
    found = []
    for port in sorted(glob.glob(os.path.join(root, "sys/class/infiniband/*/ports/*")))[:_MOST_ADAPTERS]:
        device = os.path.dirname(os.path.dirname(port))
        rate = re.match(r"([\d.]+) Gb/sec", read_text(os.path.join(port, "rate")) or "")
        state = read_text(os.path.join(port, "state"))
        found.append(
            {
                "name": os.path.basename(device),
                "port": os.path.basename(port),
                "link_layer": read_text(os.path.join(port, "link_layer")),
                "state": state.split(":")[-1].strip() if state else None,
                "bits_per_second": float(rate.group(1)) * 1e9 if rate else None,
                "numa_node": numa_node(os.path.join(device, "device")),
            }
        )
    return found


def _interfaces(root: str) -> List[Dict[str, Any]]:
    """Network interfaces other than the loop; most virtual ones have no speed."""
    found = []
    for path in sorted(glob.glob(os.path.join(root, "sys/class/net/*"))):
        name, speed = os.path.basename(path), read_text(os.path.join(path, "speed")) or ""
        if name != "lo" and os.path.isdir(path):
            bits = int(speed) * 1e6 if speed.isdigit() else None
            found.append({"name": name, "state": read_text(os.path.join(path, "operstate")), "bits_per_second": bits})
    return found[:_MOST_INTERFACES]


def bind(gpus: Sequence[Any], local_rank: int, sys: str = _SYS) -> Dict[str, Any]:
    """Bind this process with all its threads; the ``affinity`` facts.

    ``gpus``: for each local rank what tells of its GPU, as ``suite.worker.nvml.NvmlGpu``, or None. Where nothing is
    known, nothing is changed.
    """
    allowed = frozenset(os.sched_getaffinity(0))
    places = [near(gpu, sys) for gpu in gpus]
    cpus, ranks, how = choose([near_cpus for near_cpus, _ in places], local_rank, allowed, sys)
    if cpus != allowed:
        for task in os.listdir("/proc/self/task"):
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
    path = os.path.join(sys, "devices", "system", "cpu", "cpu{}", "topology", "thread_siblings_list")
    return sorted({(read_list(path.format(cpu)) or frozenset((cpu,))) & cpus for cpu in cpus}, key=min)


def read_list(path: str) -> Cpus:
    """The numbers of a kernel's list such as ``0-3,8``; none where it cannot be read."""
    numbers: List[int] = []
    for part in filter(None, (read_text(path) or "").split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
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
