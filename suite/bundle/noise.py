"""The noise around the counted iterations: what each rank and each host told with them, summed up."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suite.bundle.energy import throttle_reasons, window_figure
from suite.bundle.event_fields import Iteration, Start
from suite.bundle.events import Events
from suite.bundle.facts import facts_of, inner
from suite.bundle.noise_model import ClockRange, Noise, Spread, Straggler
from suite.bundle.timeline import Timeline
from suite.spec.manifest import Manifest

#: Of the iteration, that a rank comes later than the last but one before it is called a straggler.
LATE_SHARE = 0.05
#: What a rank tells of an iteration.
_Window = Mapping[str, Any]


@dataclass(frozen=True)
class HostUse:
    """The CPUs of a host that ranks of the run may run on: how many there are, how many their threads need (null beside
    GPUs, where they use what they need), and how many they and others used in the mean. ``rank``: who tells."""

    rank: int
    cpus: int
    needed: int | None
    used: float
    others: float


@dataclass(frozen=True)
class Heard:
    """What was told with the counted iterations. ``ranks``: the windows of ranks that told one each time; ``hosts`` of
    those of them that told their host's. ``late``: seconds that a rank came last, by iteration and rank."""

    ranks: dict[int, list[_Window]]
    hosts: dict[int, list[_Window]]
    uses: tuple[HostUse, ...]
    late: dict[int, dict[int, float]]


def hear(events: Events, training: Events, timeline: Timeline, manifest: Manifest) -> Heard:
    """``training``: the ranks that meet at the ends of phases."""
    ranks = _windows(events, timeline.counted, "noise")
    hosts: dict[int, list[_Window]] = {
        rank: [{**window["host"], "seconds": window.get("seconds")} for window in windows]
        for rank, windows in ranks.items()
        if all(window.get("host") for window in windows)
    }
    places: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank in events.ranks:
        places[_place(events, rank)].append(rank)
    uses = (_use(rank, hosts[rank], ranks, places[_place(events, rank)], manifest) for rank in hosts)
    return Heard(ranks, hosts, tuple(use for use in uses if use is not None), _lateness(training, timeline.counted))


def summarise(heard: Heard, events: Events, timeline: Timeline) -> Noise:
    """Raises DamagedBundle for a device window whose figures are no numbers."""
    ranks, hosts = heard.ranks, heard.hosts
    devices = _windows(events, timeline.counted, "device")
    return Noise(
        cpu_share=_rate(ranks, "thread_cpu_seconds", least=True),
        cpus_used=_rate(ranks, "cpu_seconds"),
        cpu_wait_share=_rate(ranks, "cpu_wait_seconds"),
        involuntary_switches=_rate(ranks, "involuntary_switches", per=("cpu_seconds",)),
        major_faults=_rate(ranks, "major_faults"),
        minor_faults=_rate(ranks, "minor_faults"),
        throttled_share=_rate(ranks, "throttled_seconds"),
        others_cpus=_spread({use.rank: [use.others] for use in heard.uses}),
        steal_share=_rate(hosts, "steal_seconds", per=("steal_seconds", "busy_seconds")),
        cpu_pressure_share=_rate(hosts, "cpu_pressure_seconds"),
        memory_pressure_share=_rate(hosts, "memory_pressure_seconds"),
        load=_spread(_values(hosts, "load")),
        runnable=_spread(_values(hosts, "runnable")),
        cpu_mhz=_clock(_values(ranks, "cpu_mhz")),
        device_mhz=_clock(_figures(devices, "sm_clock_mhz_mean")),
        device_temperature=_spread(_figures(devices, "temperature_max")),
        device_throttling=throttle_reasons(events, timeline),
        device_others=_spread(_figures(devices, "other_processes")),
        stragglers=_stragglers(heard.late, timeline),
    )


def total(windows: Iterable[_Window], *names: str) -> float | None:
    """Of these figures over all windows; null where one of them does not tell one."""
    values: list[Any] = [window.get(name) for window in windows for name in names]
    return None if None in values else math.fsum(values)


def _rate(
    ranks: Mapping[int, Sequence[_Window]], name: str, per: tuple[str, ...] = ("seconds",), least: bool = False
) -> Spread | None:
    """Total over total; ranks that do not tell it are left out."""
    both = {rank: (total(windows, name), total(windows, *per)) for rank, windows in ranks.items()}
    known = {rank: (above, below) for rank, (above, below) in both.items() if above is not None and below}
    if not known:
        return None
    shares = {rank: above / below for rank, (above, below) in known.items()}
    worst = (min if least else max)(shares, key=lambda rank: shares[rank])
    whole = math.fsum(below for _, below in known.values())
    return Spread(mean=math.fsum(above for above, _ in known.values()) / whole, worst=shares[worst], rank=worst)


def _values(windows: Mapping[int, Sequence[_Window]], name: str) -> dict[int, list[float | None]]:
    return {rank: [window.get(name) for window in known] for rank, known in windows.items()}


def _spread(values: Mapping[int, Sequence[float | None]]) -> Spread | None:
    """The mean of all values, and the greatest; ranks that do not know one each time are left out."""
    known = {rank: [value for value in found if value is not None] for rank, found in values.items()}
    known = {rank: found for rank, found in known.items() if found and len(found) == len(values[rank])}
    if not known:
        return None
    worst = max(known, key=lambda rank: max(known[rank]))
    every = [value for found in known.values() for value in found]
    return Spread(mean=math.fsum(every) / len(every), worst=max(known[worst]), rank=worst)


def _clock(values: Mapping[int, Sequence[float | None]]) -> ClockRange | None:
    """Of the rank with the largest step, in proportion."""
    ranges = {}
    for rank, found in values.items():
        known = [value for value in found if value]
        if known and len(known) == len(found):
            ranges[rank] = ClockRange(lowest=min(known), highest=max(known), rank=rank)
    return max(ranges.values(), key=lambda one: one.highest / one.lowest, default=None)


def _windows(events: Events, counted: Sequence[int], field: str) -> dict[int, list[_Window]]:
    """Of the ranks that have this field in each counted iteration."""
    found: dict[int, list[_Window]] = {}
    for rank in events.ranks:
        known = [getattr(event, field) for event in events.of(rank, Iteration)]
        windows = [window for index in counted if index < len(known) and (window := known[index])]
        if len(windows) == len(counted):
            found[rank] = windows
    return found


def _figures(devices: Mapping[int, Sequence[_Window]], name: str) -> dict[int, list[float | None]]:
    return {rank: [window_figure(window, name) for window in windows] for rank, windows in devices.items()}


def _use(
    rank: int, host: Sequence[_Window], ranks: Mapping[int, list[_Window]], peers: Sequence[int], manifest: Manifest
) -> HostUse | None:
    """Of the CPUs that ``rank`` tells of and its ``peers`` run on too; null where one of them does not tell its own."""
    busy, seconds, cpus = total(host, "busy_seconds"), total(host, "seconds"), host[0].get("cpus")
    own = [total(ranks[peer], "cpu_seconds") if peer in ranks else None for peer in peers]
    if busy is None or not seconds or not cpus or None in own:
        return None
    used = math.fsum(value for value in own if value is not None)
    is_cpu = manifest.measure.device == "cpu"
    needed = len(peers) * manifest.measure.threads_per_rank if is_cpu else None
    return HostUse(rank, int(cpus), needed, used / seconds, max(0.0, busy - used) / seconds)


def _place(events: Events, rank: int) -> tuple[str, str]:
    """The host and the CPUs that a rank runs on, as it names them."""
    start, cpus = next(iter(events.of(rank, Start)), None), inner(facts_of(events, rank), "affinity", "cpus")
    return (start.host if start else "", cpus if isinstance(cpus, str) else "")


def _lateness(training: Events, counted: Sequence[int]) -> dict[int, dict[int, float]]:
    """By iteration and rank: for each phase at whose end it came last, how long after the last but one."""
    late: dict[int, dict[int, float]] = {iteration: {} for iteration in counted}
    waits = training.times.wait[:, counted]
    if len(waits) > 1:
        ranks, last = training.times.ranks, waits.argmin(axis=0).tolist()
        least, second = np.partition(waits, 1, axis=0)[:2]
        for iteration, of_phases, beyond in zip(counted, last, (second - least).tolist(), strict=True):
            for place, seconds in zip(of_phases, beyond, strict=True):
                if seconds >= 0:  # not NaN: every rank told it
                    late[iteration][ranks[place]] = late[iteration].get(ranks[place], 0.0) + seconds
    return late


def _stragglers(late: Mapping[int, Mapping[int, float]], timeline: Timeline) -> tuple[Straggler, ...]:
    found: dict[int, list[float]] = defaultdict(list)
    for iteration, of_ranks in late.items():
        for rank, seconds in of_ranks.items():
            if seconds > LATE_SHARE * timeline.seconds[iteration]:
                found[rank].append(seconds)
    return tuple(
        Straggler(rank=rank, iterations=len(seconds), seconds=math.fsum(seconds) / len(seconds))
        for rank, seconds in sorted(found.items())
    )
