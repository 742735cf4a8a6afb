"""What is found of this machine and of a stack's interpreter."""

import sys
from types import SimpleNamespace

import pydantic
import pynvml
import pytest

from suite.launch import probe
from suite.launch.probe import LocalDevice, id_in_mounts, local_devices, stack_versions
from suite.spec.base import UsageError

CONTAINER = "1f" * 32


def test_versions_are_those_that_ranks_of_the_interpreter_find_and_none_where_it_lacks_a_package(tmp_path, monkeypatch):
    info = tmp_path / "carried_stack-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: carried-stack\nVersion: 1.2\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    versions = stack_versions(sys.executable, ("pydantic", "surely-not-installed", "carried-stack"))
    assert versions == {"pydantic": pydantic.VERSION, "surely-not-installed": None, "carried-stack": "1.2"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "no interpreter at .*No such file"),
        ("not executable", "no interpreter at .*Permission denied"),
        ("#!/bin/sh\nexit 1\n", "is no Python 3.8 or newer"),
        ("#!/bin/sh\necho hello\n", "is no Python 3.8 or newer"),
        ("#!/bin/sh\necho 1\n", "is no Python 3.8 or newer"),
        ("#!/bin/sh\nexec sleep 600\n", "did not answer in 0.3 s"),
    ],
)
def test_what_is_no_interpreter_is_refused_in_one_line(tmp_path, monkeypatch, text, complaint):
    if text and "sleep" in text:
        monkeypatch.setattr(probe, "ASK_SECONDS", 0.3)
    program = tmp_path / "python"
    if text is not None:
        program.write_text(text)
        program.chmod(0o755 if text.startswith("#!") else 0o644)
    with pytest.raises(UsageError, match=complaint) as refused:
        stack_versions(str(program), ("torch",))
    assert "\n" not in str(refused.value)


def test_a_container_is_known_by_its_host_name_file_and_a_host_of_containers_is_none():
    folder = f"/var/lib/docker/containers/{CONTAINER}"
    inside = f"612 590 254:1 {folder}/hostname /etc/hostname rw,relatime - ext4 /dev/vda1 rw\n"
    assert id_in_mounts(inside) == CONTAINER
    assert id_in_mounts(f"88 29 0:44 / {folder}/mounts/shm rw - tmpfs shm rw\n") is None
    assert id_in_mounts("") is None


def test_devices_are_listed_as_the_driver_names_them_and_unknown_memory_stays_unknown(monkeypatch):
    """By the binding's calls as a machine with a driver answers them."""
    name, shut = "NVIDIA H100 80GB HBM3", []

    def memory(handle: int) -> SimpleNamespace:
        if handle == 1:
            raise pynvml.NVMLError_NotSupported
        return SimpleNamespace(total=80 << 30)

    calls = {
        "Init": lambda: None,
        "Shutdown": lambda: shut.append(True),
        "DeviceGetCount": lambda: 2,
        "DeviceGetHandleByIndex": lambda index: index,
        "DeviceGetName": lambda handle: name,
        "DeviceGetUUID": lambda handle: f"GPU-{handle}",
        "DeviceGetMemoryInfo": memory,
    }
    for called, call in calls.items():
        monkeypatch.setattr(pynvml, f"nvml{called}", call)
    assert local_devices() == (
        LocalDevice(index=0, uuid="GPU-0", name=name, memory_bytes=80 << 30),
        LocalDevice(index=1, uuid="GPU-1", name=name, memory_bytes=None),
    )
    assert shut
