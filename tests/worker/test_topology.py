"""What a node's driver and kernel tell of its links: a made-up /sys and NVML, which are the only parts replaced."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from suite.worker.nvml import NvmlGpu
from suite.worker.topology import collect_topology, describe_gpus
from suite.worker.world import World
from tests.worker.pretended_nvml import UNSUPPORTED, PretendedNvml
from tests.worker.written import write

CPU = World(0, 2, 0, 2, torch.device("cpu"))


PLACES = {"a": b"00000000:3B:00.0", "b": "00000000:5E:00.0", "other": "00000000:AF:00.0"}


def pci(name: str) -> SimpleNamespace:
    return SimpleNamespace(busId=PLACES[name])


def gpus(*names: str, **answers: Any) -> list[NvmlGpu]:
    """Of three links each: one up to the other, one up to a GPU of another job, one down."""
    made = {
        "PciInfo": pci,
        "CurrPcieLinkGeneration": 1,
        "MaxPcieLinkGeneration": 4,
        "CurrPcieLinkWidth": 8,
        "MaxPcieLinkWidth": UNSUPPORTED,
        "NvLinkState": lambda _, link: int(link < 2) if link < 3 else UNSUPPORTED,
        "NvLinkRemoteDeviceType": 0,
        "NvLinkRemotePciInfo": lambda handle, link: pci("other" if link else {"a": "b", "b": "a"}[handle]),
        "NvLinkVersion": 3,
        "P2PStatus": lambda _first, _second, how: 0 if how == 0 else 4,
    }
    nvml = PretendedNvml(**{**made, **answers})
    return [NvmlGpu(nvml, name) for name in names]


LINKS = {"links": 3, "active": 2, "version": 3}


class TestGpus:
    def test_links_are_counted_by_where_they_lead(self, tmp_path: Path) -> None:
        root = write(tmp_path, {"sys/bus/pci/devices/0000:3b:00.0/numa_node": "1\n"})
        first, second = describe_gpus(gpus("a", "b"), str(root))
        assert first == {
            "pci": "0000:3b:00.0",
            "numa_node": 1,
            "pcie": {"generation": 1, "max_generation": 4, "width": 8, "max_width": None},
            "nvlinks": {**LINKS, "to_ranks": 1},
            "peers": {"others": 1, "read": 1, "nvlink": 0},
        }
        assert second["pci"] == "0000:5e:00.0"
        assert second["numa_node"] is None

    @pytest.mark.parametrize(
        ("answers", "nvlinks"),
        [
            # all links go to a switch, whose place nobody can ask for
            ({"NvLinkRemoteDeviceType": 2, "NvLinkRemotePciInfo": UNSUPPORTED}, {**LINKS, "to_ranks": 2}),
            ({"NvLinkState": UNSUPPORTED}, None),
            ({"NvLinkRemoteDeviceType": None}, {**LINKS, "to_ranks": None}),
        ],
        ids=["a switch reaches everybody", "no links", "an old pynvml has no such call"],
    )
    def test_links_of_other_kinds(self, answers: dict[str, Any], nvlinks: dict[str, Any] | None) -> None:
        (told,) = describe_gpus(gpus("a", **answers), "/none")
        assert told["nvlinks"] == nvlinks


class TestKernel:
    def test_adapters_and_interfaces_are_read_from_sys(self, tmp_path: Path) -> None:
        port, net = "sys/class/infiniband/mlx5_0/ports/1", "sys/class/net"
        root = write(
            tmp_path,
            {
                f"{port}/rate": "400 Gb/sec (4X NDR)\n",
                f"{port}/link_layer": "InfiniBand\n",
                f"{port}/state": "4: ACTIVE\n",
                "sys/class/infiniband/mlx5_0/device/numa_node": "-1\n",
                f"{net}/eth0/speed": "25000\n",
                f"{net}/eth0/operstate": "up\n",
                f"{net}/veth1/speed": "-1\n",
                f"{net}/lo/operstate": "unknown\n",
                "proc/modules": "nvidia_peermem 16384 0 - Live 0x0\nib_core 1 2 - Live 0x0\n",
            },
        )
        adapter = {"name": "mlx5_0", "port": "1", "link_layer": "InfiniBand", "state": "ACTIVE"}
        assert collect_topology(CPU, str(root)) == {
            "gpus": None,
            "adapters": [{**adapter, "bits_per_second": 400e9, "numa_node": None}],
            "interfaces": [
                {"name": "eth0", "state": "up", "bits_per_second": 25e9},
                {"name": "veth1", "state": None, "bits_per_second": None},
            ],
            "nvidia_peermem": True,
        }

    def test_what_is_not_there_is_null_or_empty_and_one_rank_of_a_node_tells(self, tmp_path: Path) -> None:
        nothing = {"gpus": None, "adapters": [], "interfaces": [], "nvidia_peermem": None}
        assert collect_topology(CPU, str(tmp_path)) == nothing
        assert collect_topology(World(1, 2, 1, 2, CPU.device), str(tmp_path)) is None
