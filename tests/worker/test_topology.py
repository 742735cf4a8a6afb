"""What a node's driver and kernel tell of its links and of the CPUs near a GPU: a made-up /sys and NVML."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from suite.worker.nvml import NvmlGpu
from suite.worker.topology import as_list, bind, choose, collect_topology, describe_gpus, near
from suite.worker.world import World
from tests.worker.pretended_nvml import UNSUPPORTED, PretendedNvml
from tests.worker.tiny import ROOT
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


ADDRESSES = ("0000:17:00.0", "0000:65:00.0", "0000:ca:00.0", "0000:e3:00.0")
#: two sockets of eight cores: CPU n and n + 16 are threads of one core
SOCKETS = (frozenset({*range(8), *range(16, 24)}), frozenset({*range(8, 16), *range(24, 32)}))


def gpu(address: str | None) -> Any:
    """What the binding asks of a GPU."""
    return SimpleNamespace(pci_address=lambda: address)


@pytest.fixture
def node(tmp_path: Path) -> str:
    """Two GPUs at each socket, the threads of each core as the kernel tells them."""
    for index, address in enumerate(ADDRESSES):
        place = {"local_cpulist": ("0-7,16-23\n", "8-15,24-31\n")[index // 2], "numa_node": f"{index // 2}\n"}
        write(tmp_path / "bus/pci/devices" / address, place)
    for cpu in range(32):
        siblings = {"thread_siblings_list": f"{cpu % 16},{cpu % 16 + 16}\n"}
        write(tmp_path / f"devices/system/cpu/cpu{cpu}/topology", siblings)
    return str(tmp_path)


def shares(node: str, allowed: frozenset[int], ranks: int = 4) -> list[frozenset[int]]:
    places = [near(gpu(ADDRESSES[rank]), node)[0] for rank in range(ranks)]
    return [choose(places, rank, allowed, node)[0] for rank in range(ranks)]


def test_ranks_at_one_socket_divide_its_cores_and_keep_the_threads_of_a_core_together(node: str) -> None:
    assert shares(node, SOCKETS[0] | SOCKETS[1]) == [
        {0, 1, 2, 3, 16, 17, 18, 19},
        {4, 5, 6, 7, 20, 21, 22, 23},
        {8, 9, 10, 11, 24, 25, 26, 27},
        {12, 13, 14, 15, 28, 29, 30, 31},
    ]
    assert shares(node, SOCKETS[0] | SOCKETS[1], ranks=3)[2] == SOCKETS[1], "alone at its socket"


def test_the_kernel_tells_where_a_gpu_is(node: str) -> None:
    assert near(gpu(ADDRESSES[3]), node) == (SOCKETS[1], 1)
    for unknown in (gpu("0000:00:00.0"), gpu(None), None):
        assert near(unknown, node) == (frozenset(), None)


@given(allowed=st.frozensets(st.integers(0, 31), min_size=1))
def test_nobody_leaves_what_is_allowed_and_nobody_is_left_without(allowed: frozenset[int]) -> None:
    """Without /sys every CPU is a core of its own."""
    places = [SOCKETS[0], SOCKETS[0], SOCKETS[1], frozenset()]
    found = [choose(places, rank, allowed, "/nowhere") for rank in range(4)]
    assert all(cpus and cpus <= allowed for cpus, _, _ in found)
    assert found[3][0] == allowed
    if len(allowed & SOCKETS[0]) >= 2:
        assert not found[0][0] & found[1][0]
        assert found[0][0] | found[1][0] == allowed & SOCKETS[0]


def test_a_container_whose_cpus_are_elsewhere_is_left_alone_and_too_few_cores_are_shared(node: str) -> None:
    cpus, ranks, how = choose([SOCKETS[0]], 0, SOCKETS[1], node)
    assert (cpus, ranks) == (SOCKETS[1], 1)
    assert how.startswith("left alone: no CPU near the GPU")
    # fewer cores than ranks are shared
    assert choose([SOCKETS[0]] * 2, 1, frozenset({3, 19, 30}), node)[:2] == ({3, 19}, 2)


@pytest.mark.slow
def test_a_process_is_really_bound_with_the_threads_it_has(tmp_path: Path) -> None:
    first = min(os.sched_getaffinity(0))
    place = {"local_cpulist": f"{first}\n", "numa_node": "-1\n"}
    write(tmp_path / "bus/pci/devices" / ADDRESSES[0], place)
    program = (
        "import os, threading, time\n"
        "from types import SimpleNamespace\n"
        "from suite.worker.topology import bind\n"
        f"gpu = SimpleNamespace(pci_address=lambda: {ADDRESSES[0]!r})\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        f"print(bind([gpu], 0, {str(tmp_path)!r}))\n"
        "print([sorted(os.sched_getaffinity(int(task))) for task in os.listdir('/proc/self/task')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    facts, bound = ran.stdout.splitlines()
    how = "near the GPU, its cores divided among ranks: 1"
    assert facts == str({"cpus": str(first), "ranks": 1, "numa_node": None, "how": how})
    assert bound == str([[first], [first]])


def test_without_a_gpu_that_is_known_nothing_is_bound() -> None:
    before = os.sched_getaffinity(0)
    facts = bind([None, None], 1)
    assert facts["how"] == "left alone: nobody says which CPUs are near the GPU"
    assert (facts["cpus"], facts["ranks"]) == (as_list(frozenset(before)), 2)
    assert os.sched_getaffinity(0) == before
