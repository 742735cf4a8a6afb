"""Which limit of its partition a job exceeds, from what scontrol says of both. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

_FACT = re.compile(r"(?:^|\s)([A-Za-z/:]+)=(\S*)")
_CHANGE = "change --nodes, --gpus-per-node, --timeout, --allowance or --partition"


def facts_of(text: str) -> dict[str, str]:
    """``NAME=VALUE`` words of a line of scontrol; the first of a name counts."""
    found: dict[str, str] = {}
    for name, value in _FACT.findall(text):
        found.setdefault(name, value)
    return found


def why_never(reason: str, job: str, partition: str) -> str:
    """Why a job of this reason can never start, and what to change.

    ``job``, ``partition``: scontrol's lines about them; empty where it does not tell.
    """
    asked, given = facts_of(job), facts_of(partition)
    name = given.get("PartitionName") or asked.get("Partition") or ""
    where = f"partition {name}" if name else "its partition"
    exceeded = list(_exceeded(asked, given))
    if exceeded:
        return f"Slurm can never start this job ({reason}): {' and '.join(exceeded)} of {where}; {_CHANGE}"
    known = ", ".join(
        f"{fact}={given[fact]}" for fact in ("MaxNodes", "TotalNodes", "MaxTime", "State") if given.get(fact)
    )
    has = f", which has {known}" if known else " (scontrol show partition)"
    return f"Slurm can never start this job ({reason}): it asks for more or other than {where} gives{has}; {_CHANGE}"


def _exceeded(asked: dict[str, str], given: dict[str, str]) -> Iterator[str]:
    if seconds(asked.get("TimeLimit", "")) > seconds(given.get("MaxTime", "UNLIMITED")):
        yield f"TimeLimit={asked['TimeLimit']} is more than MaxTime={given['MaxTime']}"
    nodes = _number(asked.get("NumNodes", "").partition("-")[0])
    for limit in ("MaxNodes", "TotalNodes"):
        if nodes is not None and nodes > (_number(given.get(limit, "")) or math.inf):
            yield f"NumNodes={nodes} is more than {limit}={given[limit]}"


def seconds(text: str) -> float:
    """``2-03:04:05``, ``03:04:05`` or ``04:05``; infinite for ``UNLIMITED``, 0 for what is no time."""
    if text in ("UNLIMITED", "INFINITE"):
        return math.inf
    days, _, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in (*parts, days or "0")) or len(parts) not in (2, 3):
        return 0.0
    hours, minutes, left = ([0] if len(parts) == 2 else []) + [int(part) for part in parts]
    return float(((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + left)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None
