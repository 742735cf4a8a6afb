"""Runs beside each other: no device is lent twice, and what asks for more than there is waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.conduct.planning.machine import Machine
from suite.conduct.running.side_by_side import Slots, require_containers
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from tests.synthetic import synthetic_manifest


@given(devices=st.integers(1, 8), most=st.integers(1, 8), steps=st.lists(st.tuples(st.booleans(), st.integers(1, 8))))
def test_no_device_is_lent_twice_and_no_more_runs_go_on_than_asked_for(
    devices: int, most: int, steps: list[tuple[bool, int]]
) -> None:
    names = tuple(f"GPU-{index}" for index in range(devices))
    slots = Slots(names, most)
    lent: list[tuple[str, ...]] = []
    for gives_back, count in steps:
        if gives_back and lent:
            slots.give_back(lent.pop(0))
        elif slots.has_room(count):
            free = [name for name in names if not any(name in some for some in lent)]
            lent.append(slots.take(count))
            assert lent[-1] == tuple(free[:count]), "the first free ones, so that neighbours stay together"
        busy = [device for devices in lent for device in devices]
        assert len(busy) == len(set(busy)) and set(busy) <= set(names)
        assert len(lent) <= most
        assert slots.has_room(1) == (len(lent) < most and len(busy) < devices)


@pytest.mark.parametrize(("device", "threads", "wanted"), [("cpu", 1, 2), ("cpu", 3, 6), ("cpu", 9, 8), ("cuda", 9, 2)])
def test_a_run_takes_a_gpu_for_each_rank_or_a_cpu_for_each_of_its_threads(
    device: str, threads: int, wanted: int
) -> None:
    slots = Slots(tuple(map(str, range(8))), most=4)
    manifest = synthetic_manifest(layout=Layout(devices_per_node=2, data=2), device=device)
    measure = manifest.measure.model_copy(update={"threads_per_rank": threads})
    assert slots.wanted_by(manifest.model_copy(update={"measure": measure})) == wanted


def test_without_containers_nothing_keeps_runs_apart() -> None:
    machine = Machine(python="python3", device="cpu", max_ranks=8, device_memory_bytes=None)
    require_containers(machine, 1)
    with pytest.raises(UsageError, match="--launcher docker"):
        require_containers(machine, 2)
