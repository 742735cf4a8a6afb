"""What a machine offers to a plan."""

from __future__ import annotations

import pytest

from suite.conduct.planning.machine import Machine, look_at_machine, threads_of_a_full_node
from suite.conduct.planning.plan import make_plan
from suite.spec.base import UsageError
from suite.theory.memory import memory_floor
from tests.conduct.requests import STACKS, request, shape


def cpu(host_memory_bytes: int | None) -> Machine:
    return Machine(
        python="python", device="cpu", max_ranks=2, device_memory_bytes=None, host_memory_bytes=host_memory_bytes
    )


def test_a_run_that_cannot_fit_a_cpus_memory_is_refused_before_it_takes_the_machine_along() -> None:
    plan = make_plan(request(sizes=(shape("large", layers=24, hidden=1024, ffn=4096),), ranks=(1, 2)), STACKS)
    floors = [
        memory_floor(one.size, one.workload, one.work, one.layout, "fp32").bytes * one.layout.ranks
        for one in plan.manifests
    ]
    cpu(max(floors)).require_memory(plan.manifests)
    with pytest.raises(UsageError, match=r"large on 2 ranks needs at least .* GiB of memory, this machine has"):
        cpu(max(floors) - 1).require_memory(plan.manifests)


def test_where_the_memory_is_not_known_nothing_is_refused() -> None:
    cpu(None).require_memory(make_plan(request(), STACKS).manifests)


def test_this_host_tells_its_memory_for_runs_on_its_cpu() -> None:
    assert look_at_machine("python", "cpu").host_memory_bytes > 0


@pytest.mark.parametrize(
    ("ranks", "threads", "says"),
    [(3, 1, "3 ranks on 2 cores .* fewer ranks,"), (1, 3, "1 rank of 3 threads each on 2 cores .* ranks or --threads")],
)
def test_more_threads_than_a_cpu_has_are_refused_unless_asked_for(ranks: int, threads: int, says: str) -> None:
    cpu(None).require_room(2, False)
    cpu(None).require_room(1, False, threads=2)
    with pytest.raises(UsageError, match=says):
        cpu(None).require_room(ranks, False, threads=threads)
    cpu(None).require_room(ranks, True, threads=threads)


@pytest.mark.parametrize(("cores", "devices", "threads"), [(96, 8, 12), (6, 8, 1), (7, 2, 3), (None, 8, 8), (96, 0, 8)])
def test_a_rank_on_a_gpu_has_its_share_of_a_full_nodes_cores(cores: int | None, devices: int, threads: int) -> None:
    assert threads_of_a_full_node(cores, devices) == threads


def test_a_rank_on_a_cpu_has_one_thread_unless_asked_for() -> None:
    assert look_at_machine("python", "cpu").threads_per_rank == 1
