"""What a machine offers to a plan."""

from __future__ import annotations

import pytest

from suite.conduct.planning.machine import Machine, look_at_machine
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
