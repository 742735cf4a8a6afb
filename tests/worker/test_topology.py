"""What a node's driver and kernel tell of its links: a made-up /sys and NVML, which are the only parts replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch

from suite.worker.topology import collect_topology, describe_gpus
from suite.worker.world import World

CPU = World(0, 2, 0, 2, torch.device("cpu"))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


class PretendedNvml:
    """Two GPUs of three links each: one up to the other, one up to a GPU of another job, one down."""

    class NVMLError(Exception):
        pass

    _PLACES: ClassVar = {"a": b"00000000:3B:00.0", "b": "00000000:5E:00.0", "other": "00000000:AF:00.0"}

    class Pci:
        def __init__(self, bus_id: Any) -> None:
            self.busId = bus_id

    def nvmlDeviceGetPciInfo(self, handle: str) -> Pci:
        return self.Pci(self._PLACES[handle])

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: str) -> int:
        return 1

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: str) -> int:
        return 4

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: str) -> int:
        return 8

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: str) -> int:
        raise self.NVMLError("not supported")

    def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:
        if link > 2:
            raise self.NVMLError("invalid argument")
        return int(link < 2)

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: str, link: int) -> int:
        return 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: str, link: int) -> Pci:
        return self.Pci(self._PLACES["other" if link else {"a": "b", "b": "a"}[handle]])

    def nvmlDeviceGetNvLinkVersion(self, handle: str, link: int) -> int:
        return 3

    def nvmlDeviceGetP2PStatus(self, first: str, second: str, how: int) -> int:
        return 0 if how == 0 else 4


class Switched(PretendedNvml):
    """All links go to a switch, whose place nobody can ask for."""

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: str, link: int) -> int:
        return 2

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: str, link: int) -> PretendedNvml.Pci:
        raise self.NVMLError("not supported")


class WithoutLinks(PretendedNvml):
    def nvmlDeviceGetNvLinkState(self, handle: str, link: int) -> int:
        raise self.NVMLError("not supported")


class TestGpus:
    def test_links_are_counted_by_where_they_lead(self, tmp_path: Path) -> None:
        root = write(tmp_path, {"sys/bus/pci/devices/0000:3b:00.0/numa_node": "1\n"})
        first, second = describe_gpus(PretendedNvml(), ["a", "b"], str(root))
        assert first == {
            "pci": "0000:3b:00.0",
            "numa_node": 1,
            "pcie": {"generation": 1, "max_generation": 4, "width": 8, "max_width": None},
            "nvlinks": {"links": 3, "active": 2, "to_ranks": 1, "version": 3},
            "peers": {"others": 1, "read": 1, "nvlink": 0},
        }
        assert second["pci"] == "0000:5e:00.0"
        assert second["numa_node"] is None

    def test_a_switch_reaches_everybody_and_no_links_are_null(self) -> None:
        (switched,) = describe_gpus(Switched(), ["a"], "/none")
        assert switched["nvlinks"]["to_ranks"] == 2
        (without,) = describe_gpus(WithoutLinks(), ["a"], "/none")
        assert without["nvlinks"] is None

    def test_an_old_pynvml_without_a_function_leaves_its_answer_out(self) -> None:
        class Old(PretendedNvml):
            nvmlDeviceGetNvLinkRemoteDeviceType: ClassVar = None

        (told,) = describe_gpus(Old(), ["a"], "/none")
        assert told["nvlinks"] == {"links": 3, "active": 2, "to_ranks": None, "version": 3}


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
        assert collect_topology(CPU, str(root)) == {
            "gpus": None,
            "adapters": [
                {
                    "name": "mlx5_0",
                    "port": "1",
                    "link_layer": "InfiniBand",
                    "state": "ACTIVE",
                    "bits_per_second": 400e9,
                    "numa_node": None,
                }
            ],
            "interfaces": [
                {"name": "eth0", "state": "up", "bits_per_second": 25e9},
                {"name": "veth1", "state": None, "bits_per_second": None},
            ],
            "nvidia_peermem": True,
        }

    def test_what_is_not_there_is_null_or_empty_and_one_rank_of_a_node_tells(self, tmp_path: Path) -> None:
        assert collect_topology(CPU, str(tmp_path)) == {
            "gpus": None,
            "adapters": [],
            "interfaces": [],
            "nvidia_peermem": None,
        }
        assert collect_topology(World(1, 2, 1, 2, CPU.device), str(tmp_path)) is None

    def test_this_machine_can_be_asked(self) -> None:
        told = collect_topology(CPU)
        assert told is not None
        assert all(one["name"] != "lo" for one in told["interfaces"])
