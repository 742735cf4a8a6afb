"""What is found of this machine, of a stack's interpreter, and of what the kernel has killed."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pydantic
import pynvml
import pytest

from suite.launch import probe
from suite.launch.probe import LocalDevice, id_in_mounts, local_devices, stack_versions
from suite.launch.processes import OomKills, oom_kills
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


MACHINE = OomKills(7, "oom_kill in vmstat of the whole machine")
GROUP = "oom_kill in memory.events of the run's control group"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """One whose kernel has killed 7 processes since it started; a process of it in the group a/b."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "vmstat").write_text("nr_free_pages 5\noom_kill 7\nnuma_hit 1\n")
    (tmp_path / "proc" / "self" / "cgroup").write_text("4:memory:/else\n0::/a/b\n")
    (tmp_path / "groups" / "a" / "b").mkdir(parents=True)
    return tmp_path


def counted(machine: Path) -> OomKills | None:
    return oom_kills(machine / "proc", machine / "groups")


def write_events(folder: Path, count: int) -> None:
    (folder / "memory.events").write_text(f"low 0\nhigh 0\nmax 12\noom 9\noom_kill {count}\noom_group_kill 0\n")


def test_the_nearest_group_that_counts_is_taken_and_the_machines_count_where_none_does(machine):
    assert counted(machine) == MACHINE
    write_events(machine / "groups" / "a", 6)
    assert counted(machine) == OomKills(6, GROUP)
    write_events(machine / "groups" / "a" / "b", 2)
    assert counted(machine) == OomKills(2, GROUP), "what neighbours lost is not counted"


def test_a_container_sees_its_own_group_as_the_root(machine):
    (machine / "proc" / "self" / "cgroup").write_text("0::/\n")
    write_events(machine / "groups", 3)
    assert counted(machine) == OomKills(3, GROUP)


@pytest.mark.parametrize("seen", ["memory/else", "memory"])
def test_in_version_1_the_own_group_counts_also_where_a_container_sees_it_as_the_root(machine, seen):
    folder = machine / "groups" / seen
    folder.mkdir(parents=True)
    (folder / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n")
    assert counted(machine) == OomKills(4, "oom_kill in memory.oom_control of the run's control group")


@pytest.mark.parametrize("events", ["", "oom_kill\n", "oom_kill many\n", "oom_kill 1 2\n", "low 1\n"])
def test_a_counter_that_cannot_be_read_is_none(machine, events):
    (machine / "groups" / "a" / "b" / "memory.events").write_text(events)
    assert counted(machine) == MACHINE
    (machine / "proc" / "vmstat").unlink()
    assert counted(machine) is None
    assert oom_kills(machine / "none", machine / "none") is None
