"""The CPUs of a rank, on nodes that are folders: near its GPU, shared by whole cores, never more than is allowed."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.worker.affinity import as_list, bind, choose, near
from tests.worker.tiny import ROOT
from tests.worker.written import write

ADDRESSES = ("0000:17:00.0", "0000:65:00.0", "0000:ca:00.0", "0000:e3:00.0")
#: two sockets of eight cores: CPU n and n + 16 are threads of one core
SOCKETS = (frozenset({*range(8), *range(16, 24)}), frozenset({*range(8, 16), *range(24, 32)}))


def gpu(address: str | None, *cpus: int) -> Any:
    """What the binding asks of a GPU."""
    return SimpleNamespace(pci_address=lambda: address, near_cpus=lambda: list(cpus))


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
    places = [near(gpu(ADDRESSES[rank]), node).cpus for rank in range(ranks)]
    return [choose(places, rank, allowed, node)[0] for rank in range(ranks)]


def test_ranks_at_one_socket_divide_its_cores_and_keep_the_threads_of_a_core_together(node: str) -> None:
    found = shares(node, SOCKETS[0] | SOCKETS[1])
    assert found == [
        {0, 1, 2, 3, 16, 17, 18, 19},
        {4, 5, 6, 7, 20, 21, 22, 23},
        {8, 9, 10, 11, 24, 25, 26, 27},
        {12, 13, 14, 15, 28, 29, 30, 31},
    ]

    assert shares(node, SOCKETS[0] | SOCKETS[1], ranks=3)[2] == SOCKETS[1], "alone at its socket"


def test_the_kernel_tells_where_a_gpu_is_and_where_it_hides_the_device_its_driver(node: str) -> None:
    assert near(gpu(ADDRESSES[3]), node) == (SOCKETS[1], 1, "the kernel")
    assert near(gpu("0000:00:00.0", 4, 5), node) == ({4, 5}, None, "NVML")
    assert near(gpu(None), node).cpus == frozenset()


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


def test_a_process_is_really_bound_with_the_threads_it_has(tmp_path: Path) -> None:
    first = min(os.sched_getaffinity(0))
    place = {"local_cpulist": f"{first}\n", "numa_node": "-1\n"}
    write(tmp_path / "bus/pci/devices" / ADDRESSES[0], place)
    program = (
        "import os, threading, time\n"
        "from suite.worker.affinity import bind\n"
        "from tests.worker.test_affinity import gpu\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        f"print(bind([gpu({ADDRESSES[0]!r})], 0, {str(tmp_path)!r}))\n"
        "print([sorted(os.sched_getaffinity(int(task))) for task in os.listdir('/proc/self/task')])"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    facts, bound = ran.stdout.splitlines()
    how = "near the GPU by the kernel, its cores divided among ranks: 1"
    assert facts == str({"cpus": str(first), "ranks": 1, "numa_node": None, "how": how})
    assert bound == str([[first], [first]])


def test_without_a_gpu_that_is_known_nothing_is_bound() -> None:
    before = os.sched_getaffinity(0)
    facts = bind([None, None], 1)
    assert facts["how"] == "left alone: nobody says which CPUs are near the GPU"
    assert (facts["cpus"], facts["ranks"]) == (as_list(frozenset(before)), 2)
    assert os.sched_getaffinity(0) == before
