"""What connects the devices of this node, as its driver and its kernel tell it; what is unknown is None."""

import glob
import os
import re
from typing import Any, Dict, List, Optional

import torch

from suite.worker.affinity import numa_node
from suite.worker.nvml import NvmlGpu, find_gpu, pci_address
from suite.worker.process import read_text
from suite.worker.world import World

_MOST_ADAPTERS, _MOST_INTERFACES = 64, 32
#: nvmlDeviceGetP2PStatus: whether one device may read another's memory, and whether by NVLink (nvml.h,
#: nvmlGpuP2PCapsIndex_t; pynvml has had the first one as a tuple)
_READ, _BY_NVLINK, _REACHED = 0, 2, 0
#: nvml.h: NVML_NVLINK_MAX_LINKS and nvmlIntNvLinkDeviceType_t
_MOST_LINKS, _SWITCH, _GPU = 36, 2, 0


def collect_topology(world: World, root: str = "/") -> Optional[Dict[str, Any]]:
    """The facts ``topology`` of docs/contracts.md, told once for a node: None on its other ranks.

    ``root``: where the kernel's /sys and /proc are.
    """
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
    known = [gpu for gpu in gpus if gpu is not None]
    return describe_gpus(known, root) if len(known) == len(gpus) else None


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
                "peers": {
                    "others": len(others),
                    "read": _reached(gpu, others, _READ),
                    "nvlink": _reached(gpu, others, _BY_NVLINK),
                },
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
