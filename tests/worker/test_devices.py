"""A worker sees exactly the GPUs that its launcher asked for, or says what it sees instead."""

from pathlib import Path

import pytest

from suite.worker import devices
from suite.worker.devices import DeviceError, check_devices, check_torch_devices, seen_gpus, show_devices_by_number
from suite.worker.failures import failure_evidence, failure_kind


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node without GPUs, whose PATH holds nothing but this folder."""
    seen_gpus.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(devices.glob, "glob", lambda pattern: sorted(map(str, tmp_path.glob("nvidia[0-9c]*"))))
    yield tmp_path
    seen_gpus.cache_clear()


def list_gpus(node: Path, *uuids: int) -> None:
    says(node, *(f"echo 'GPU {index}: H200 (UUID: GPU-{uuid})'" for index, uuid in enumerate(uuids)))


def says(node: Path, *lines: str) -> None:
    """Of the lister of GPUs."""
    (node / "nvidia-smi").write_text("\n".join(["#!/bin/sh", *lines]))
    (node / "nvidia-smi").chmod(0o755)


def test_nothing_is_looked_at_where_no_launcher_chose(node: Path) -> None:
    list_gpus(node, 0)
    check_devices({})
    assert seen_gpus.cache_info().currsize == 0


@pytest.mark.parametrize("text", ["count:2", "ids:4,5", "ids:GPU-0,GPU-1"])
def test_as_many_as_asked_for_are_well(node: Path, text: str) -> None:
    list_gpus(node, 0, 1)
    check_devices({"SUITE_DEVICES": text})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("count:4", "asked for 4 GPUs, sees 2: GPU 0: H200 (UUID: GPU-0); GPU 1: H200 (UUID: GPU-1)"),
        ("ids:1", "asked for 1 GPUs, sees 2: GPU 0: H200 (UUID: GPU-0); GPU 1: H200 (UUID: GPU-1)"),
        ("", "asked for 0 GPUs, sees 2: GPU 0: H200 (UUID: GPU-0); GPU 1: H200 (UUID: GPU-1)"),
        ("ids:GPU-0,GPU-7", "asked for GPU-7, sees other GPUs: GPU 0: H200 (UUID: GPU-0); GPU 1: H200 (UUID: GPU-1)"),
    ],
)
def test_any_others_are_a_failure_with_the_list(node: Path, text: str, line: str) -> None:
    list_gpus(node, 0, 1)
    with pytest.raises(DeviceError) as caught:
        check_devices({"SUITE_DEVICES": text})
    assert str(caught.value) == line
    assert failure_kind(caught.value, "setup") == "gpu_unavailable"
    assert failure_evidence(caught.value) == [f"DeviceError: {line}"]


def test_device_files_count_where_there_is_no_lister(node: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl"):
        (node / name).touch()
    check_devices({"SUITE_DEVICES": "count:2"})
    with pytest.raises(DeviceError, match="asked for 3 GPUs, sees 2"):
        check_devices({"SUITE_DEVICES": "count:3"})


def test_a_lister_that_fails_shows_no_gpu_and_its_words(node: Path) -> None:
    says(node, "echo 'NVIDIA-SMI has failed'", "exit 9")
    with pytest.raises(DeviceError, match="asked for 1 GPUs, sees 0: NVIDIA-SMI has failed"):
        check_devices({"SUITE_DEVICES": "count:1"})


def test_torch_must_see_as_many() -> None:
    check_torch_devices({"SUITE_DEVICES": "count:2"}, 2)
    check_torch_devices({}, 5)
    with pytest.raises(DeviceError, match="asked for 2 GPUs, torch sees 1"):
        check_torch_devices({"SUITE_DEVICES": "ids:0,3"}, 1)


@pytest.mark.parametrize(
    ("shown", "numbers"),
    [("GPU-7", "1"), ("GPU-7, GPU-3", "1,0"), ("0,1", "0,1"), ("GPU-9", "GPU-9"), ("GPU-", "GPU-"), ("MIG-7", "MIG-7")],
)
def test_whole_gpus_are_shown_by_the_drivers_numbers(node: Path, shown: str, numbers: str) -> None:
    """DeepSpeed 0.19.8 ends with a ValueError where the variable holds a UUID."""
    gpus = ("GPU 0: H200 (UUID: GPU-3)", "GPU 1: H200 (UUID: GPU-7)", "  MIG 1g.10gb Device 0: (UUID: MIG-7)")
    says(node, *(f"echo '{line}'" for line in gpus))
    environment = {"CUDA_VISIBLE_DEVICES": shown}
    show_devices_by_number(environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == numbers
    assert environment.get("CUDA_DEVICE_ORDER") == ("PCI_BUS_ID" if numbers != shown else None)
