"""What a row of an asynchronous trainer tells beyond its rate: how old samples were, and how busy each role was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suite.bundle.overlap_model import OverlapRole
from suite.bundle.record import Record
from suite.spec.manifest import Manifest
from suite.stats.intervals import Interval, pooled_mean


@dataclass(frozen=True)
class RoleUse:
    """Devices with one task: seconds of a period that one of its ranks worked, in the mean, and as a share of it."""

    name: str
    ranks: int
    busy_seconds: float
    busy_share: Interval
    idle_share: Interval


@dataclass(frozen=True)
class Asynchronous:
    """``bound``: publications of weights that samples may be behind. ``staleness``: of the consumed samples the share
    that was so many publications old, from the newest on. ``exposed``: seconds of a period that training waited for
    samples."""

    bound: int
    staleness: tuple[tuple[int, float], ...]
    exposed: float
    roles: tuple[RoleUse, ...]


def asynchronous_of(manifest: Manifest, records: Sequence[Record]) -> Asynchronous | None:
    """Null of a synchronous row, and where a run does not tell. Runs are weighted by their periods."""
    known = [record.overlap for record in records if record.overlap and record.overlap.roles]
    if not manifest.layout.asynchronous or not known or len(known) < len(records):
        return None
    weights = [record.steady_state.iterations for record in records]
    names = list(dict.fromkeys(name for one in known for name in one.roles or ()))
    shared = [name for name in names if all(name in (one.roles or ()) for one in known)]
    histograms = [one.staleness or {} for one in known]
    ages = sorted({int(age) for histogram in histograms for age in histogram})
    return Asynchronous(
        bound=manifest.layout.staleness,
        staleness=tuple(
            (age, pooled_mean([histogram.get(str(age), 0.0) for histogram in histograms], weights).value)
            for age in ages
        ),
        exposed=pooled_mean([one.exposed_generate_seconds for one in known], weights).value,
        roles=tuple(_role(name, [one.roles[name] for one in known if one.roles], weights) for name in shared),
    )


def _role(name: str, known: Sequence[OverlapRole], weights: Sequence[int]) -> RoleUse:
    busy = _share([role.busy_share for role in known], weights)
    idle = Interval(1 - busy.value, *(None if bound is None else 1 - bound for bound in (busy.high, busy.low)))
    seconds = pooled_mean([role.busy_seconds / role.ranks for role in known], weights).value
    return RoleUse(name, known[0].ranks, seconds, busy, idle)


def _share(values: Sequence[float], weights: Sequence[int]) -> Interval:
    """The mean over runs; its bounds are within what a share can be."""
    found = pooled_mean(values, weights)
    low, high = (None if bound is None else min(1.0, max(0.0, bound)) for bound in (found.low, found.high))
    return Interval(min(1.0, found.value), low, high)
