"""How many processes the kernel has ended for want of memory, by the closest counter that there is.

Control groups of version 2 count for themselves and all below them, whatever limit was met
(https://docs.kernel.org/admin-guide/cgroup-v2.html, ``memory.events``), so that a neighbour's end is not taken for a
rank's. Version 1 counts for one group alone, in which a rank need not be: there the whole machine's count is what there
is.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


class OomKills(NamedTuple):
    """A counter's value, and which counter it is."""

    kills: int
    counter: str


def oom_kills(proc: Path = PROC, groups: Path = GROUPS) -> OomKills | None:
    """Of this process' control group, or the nearest above it that counts, or the machine; ``None``: nobody says."""
    for folder in _groups(proc, groups):
        count = _count(folder / "memory.events")
        if count is not None:
            return OomKills(count, "oom_kill in memory.events of the run's control group")
    count = _count(proc / "vmstat")
    return None if count is None else OomKills(count, "oom_kill in /proc/vmstat, of the whole machine")


def _groups(proc: Path, groups: Path) -> list[Path]:
    """This process' group of version 2 and those above it, as they are mounted; a container may not see its own."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return []
    own = next((line[len("0::") :] for line in lines if line.startswith("0::/")), None)
    if own is None or ".." in Path(own).parts:  # outside of what this process may see
        return []
    folder = groups / own.lstrip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(groups))]


def _count(path: Path) -> int | None:
    try:
        words = [line.split() for line in path.read_text().splitlines()]
        return next((int(number) for name, number in words if name == "oom_kill"), None)
    except (OSError, ValueError):
        return None
