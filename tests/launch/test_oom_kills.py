"""The kernel's count of out-of-memory kills, of the nearest group that counts."""

from pathlib import Path

import pytest

from suite.launch.processes import OomKills, oom_kills

MACHINE = OomKills(7, "oom_kill in /proc/vmstat, of the whole machine")
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


@pytest.mark.parametrize("events", ["", "oom_kill\n", "oom_kill many\n", "oom_kill 1 2\n", "low 1\n"])
def test_a_counter_that_cannot_be_read_is_none(machine, events):
    (machine / "groups" / "a" / "b" / "memory.events").write_text(events)
    assert counted(machine) == MACHINE
    (machine / "proc" / "vmstat").unlink()
    assert counted(machine) is None
    assert oom_kills(machine / "none", machine / "none") is None
