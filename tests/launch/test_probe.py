"""What is found of this machine and of a stack's interpreter."""

from __future__ import annotations

import importlib.metadata
import sys

import pydantic
import pynvml
import pytest

from suite.launch import probe
from suite.launch.probe import LocalDevice, driver_version, host_facts, id_in_mounts, local_devices, stack_versions
from suite.spec.base import UsageError

CONTAINER = "1f" * 32


def test_versions_are_those_of_the_interpreter_asked_and_none_where_it_lacks_a_package():
    versions = stack_versions(sys.executable, ("pydantic", "surely-not-installed"))
    assert versions == {"pydantic": pydantic.VERSION, "surely-not-installed": None}
    assert versions["pydantic"] == importlib.metadata.version("pydantic")


def test_a_stack_that_lies_on_the_python_path_is_found_as_the_ranks_find_it(tmp_path, monkeypatch):
    info = tmp_path / "carried_stack-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: carried-stack\nVersion: 1.2\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert stack_versions(sys.executable, ("carried-stack",)) == {"carried-stack": "1.2"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (None, "no interpreter at .*No such file"),
        ("not executable", "no interpreter at .*Permission denied"),
        ("#!/bin/sh\nexit 1\n", "is no Python 3.8 or newer"),
        ("#!/bin/sh\necho hello\n", "is no Python 3.8 or newer"),
        ("#!/bin/sh\necho 1\n", "is no Python 3.8 or newer"),
        ("#!/bin/sh\nexec sleep 60\n", "did not answer in 0.3 s"),
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


def test_host_facts_are_plausible():
    facts = host_facts()
    assert facts["cpu"]["threads"] >= 1
    assert facts["memory_bytes"] > 1 << 28
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))


def test_a_container_is_known_by_its_host_name_file():
    mount = (
        f"612 590 254:1 /var/lib/docker/containers/{CONTAINER}/hostname /etc/hostname rw,relatime - ext4 /dev/vda1 rw\n"
    )
    assert id_in_mounts(mount) == CONTAINER


def test_a_host_of_containers_is_not_taken_for_one():
    mount = f"88 29 0:44 / /var/lib/docker/containers/{CONTAINER}/mounts/shm rw - tmpfs shm rw\n"
    assert id_in_mounts(mount) is None
    assert id_in_mounts("") is None


class _Memory:
    total = 80 << 30


@pytest.fixture
def two_gpus(monkeypatch):
    """The binding's calls as a machine with a driver answers them; older bindings gave bytes."""
    shut = []
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: shut.append(True))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 2)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetName", lambda handle: "NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: b"GPU-%d" % handle)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: b"550.54.15")

    def memory(handle: int) -> _Memory:
        if handle == 1:
            raise pynvml.NVMLError_NotSupported
        return _Memory()

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMemoryInfo", memory)
    yield
    assert shut


def test_devices_are_listed_as_the_driver_names_them_and_unknown_memory_stays_unknown(two_gpus):
    name = "NVIDIA H100 80GB HBM3"
    assert local_devices() == (
        LocalDevice(index=0, uuid="GPU-0", name=name, memory_bytes=80 << 30),
        LocalDevice(index=1, uuid="GPU-1", name=name, memory_bytes=None),
    )
    assert driver_version() == "550.54.15"


def test_without_a_driver_there_are_no_devices(monkeypatch):
    def absent() -> None:
        raise pynvml.NVMLError_LibraryNotFound

    monkeypatch.setattr(pynvml, "nvmlInit", absent)
    assert local_devices() == ()
    assert driver_version() is None
