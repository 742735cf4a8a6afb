"""What a machine offers to a plan, and to runs beside each other: no device is lent twice."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suite.conduct.planning.machine import Machine, look_at_machine
from suite.conduct.running.at_once import Slots
from suite.launch.probe import LocalDevice
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from tests.synthetic import synthetic_manifest


def machine(device: str, **changes: Any) -> Machine:
    return Machine(**{"python": "python", "device": device, "max_ranks": 2, "device_memory_bytes": None, **changes})


@pytest.mark.parametrize(
    ("here", "asked", "says"),
    [
        (machine("cpu"), (3, 1), "3 ranks on 2 cores .* fewer ranks,"),
        (machine("cpu"), (1, 3), "1 rank of 3 threads each on 2 cores .* ranks or --threads"),
        # what an option takes away is not said to be missing
        (machine("cuda", max_ranks=1, limited_by="--gpu-ids 0"), (2, 1), "2 ranks need 2 GPUs, --gpu-ids 0 leaves 1$"),
        (machine("cuda", max_ranks=1), (2, 1), "2 ranks need 2 GPUs, this machine has 1$"),
    ],
)
def test_more_than_there_is_is_refused(here: Machine, asked: tuple[int, int], says: str) -> None:
    ranks, threads = asked
    here.require_room(here.max_ranks, False)
    with pytest.raises(UsageError, match=says):
        here.require_room(ranks, False, threads=threads)
    if here.device == "cpu":
        here.require_room(1, False, threads=2)
        here.require_room(ranks, True, threads=threads)


@pytest.mark.parametrize(
    ("ids", "variable", "limited_by"),
    [(("1",), None, "--gpu-ids 1"), ((), "0", "CUDA_VISIBLE_DEVICES=0"), ((), None, None), (("0", "1"), None, None)],
)
def test_what_leaves_fewer_gpus_than_there_are_is_known(monkeypatch, ids, variable, limited_by):
    gpus = tuple(LocalDevice(index=index, uuid=f"GPU-{index}a", name="A100", memory_bytes=1 << 30) for index in (0, 1))
    monkeypatch.setattr("suite.conduct.planning.machine.local_devices", lambda: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert look_at_machine("python", "cuda", gpu_ids=ids).limited_by == limited_by


@pytest.mark.parametrize("container", [None, "4f" * 32])
def test_a_missing_gpu_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch, container: str | None) -> None:
    monkeypatch.setattr("suite.conduct.planning.machine.local_devices", tuple)
    monkeypatch.setattr("suite.conduct.planning.machine.container_id", lambda: container)
    with pytest.raises(UsageError, match=r"--device cuda: .*no NVIDIA driver shows a GPU") as told:
        look_at_machine("python", "cuda")
    assert ("gpu_unavailable" in str(told.value)) is (container is not None)
    assert ("SUITE_DEVICE=cpu" in str(told.value)) is (container is not None)
    assert ("suite doctor" in str(told.value)) is (container is None)


def run_of(number: int, ranks: int) -> Manifest:
    return synthetic_manifest(layout=Layout(devices_per_node=ranks, data=ranks), device="cuda", repeat=number)


@given(devices=st.integers(1, 8), most=st.integers(1, 8), steps=st.lists(st.tuples(st.booleans(), st.integers(1, 8))))
def test_no_device_is_lent_twice(devices: int, most: int, steps: list[tuple[bool, int]]) -> None:
    names = tuple(f"GPU-{index}" for index in range(devices))
    slots = Slots(names, most)
    going: list[Manifest] = []
    for number, (gives_back, ranks) in enumerate(steps, start=1):
        manifest = run_of(number, min(ranks, devices))
        if gives_back and going:
            del slots.lent[going.pop(0).run.id]
        elif slots.room_for(manifest):
            free = [name for name in names if not any(name in some for some in slots.lent.values())]
            lent = slots.lent[manifest.run.id] = slots.room_for(manifest)
            going.append(manifest)
            assert lent == tuple(free[: len(lent)]), "the first free ones, so that neighbours stay together"
            assert len(lent) == min(ranks, devices)
        busy = [device for devices in slots.lent.values() for device in devices]
        assert len(busy) == len(set(busy)) and set(busy) <= set(names)
        assert len(slots.lent) == len(going) <= most
        assert bool(slots.room_for(run_of(999, 1))) == (len(going) < most and len(busy) < devices)


@pytest.mark.parametrize(("device", "threads", "wanted"), [("cpu", 1, 2), ("cpu", 3, 6), ("cpu", 9, 8), ("cuda", 9, 2)])
def test_a_run_takes_a_gpu_a_rank_or_a_cpu_a_thread(device: str, threads: int, wanted: int) -> None:
    slots = Slots(tuple(map(str, range(8))), most=4)
    layout = Layout(devices_per_node=2, data=2)
    manifest = synthetic_manifest(layout=layout, device=device, threads_per_rank=threads)
    assert len(slots.room_for(manifest)) == wanted
