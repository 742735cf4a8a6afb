"""What was around the counted iterations: the noise that each rank and each host told with them, summed up, the energy
of their GPU boards, and what held the clocks back."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from suite.bundle.event_fields import Start
from suite.bundle.events import Events
from suite.bundle.facts import facts_of, inner
from suite.bundle.files import DamagedBundle
from suite.bundle.parts import ClockRange, Noise, Spread, Straggler
from suite.bundle.record import Energy
from suite.bundle.timeline import Timeline

#: Of the iteration, that a rank comes later than the last but one before it is called a straggler.
LATE_SHARE = 0.05
#: Power sensors see about a quarter of the run time on A100 and H100 (arXiv 2312.02741), so short windows say little.
SHORTEST_WINDOW_SECONDS = 10.0
#: What a rank tells of an iteration; by rank that of each.
_Window = Mapping[str, Any]
_Windows = Mapping[int, Sequence[_Window]]
#: Joules, null where they are not known, and why not.
_Total = tuple[float | None, str | None]


class HostUse(NamedTuple):
    """The CPUs of a host that ranks of the run may run on: how many there are, how many their threads need (null beside
    GPUs, where they use what they need), and how many they and others used in the mean. ``rank``: who tells."""

    rank: int
    cpus: int
    needed: int | None
    used: float
    others: float


class Heard(NamedTuple):
    """What was told with the counted iterations. ``ranks``: the windows of ranks that told one each time; ``hosts`` of
    those of them that told their host's. ``late``: seconds that a rank came last, by iteration and rank."""

    ranks: _Windows
    hosts: _Windows
    uses: tuple[HostUse, ...]
    late: dict[int, dict[int, float]]


def hear(timeline: Timeline) -> Heard:
    events, ranks = timeline.events, _windows(timeline, "noise")
    hosts: _Windows = {
        rank: [{**window["host"], "seconds": window.get("seconds")} for window in windows]
        for rank, windows in ranks.items()
        if all(window.get("host") for window in windows)
    }
    peers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank in events.ranks:
        peers[_place(events, rank)].append(rank)
    uses = (_use(rank, hosts[rank], ranks, peers[_place(events, rank)], timeline) for rank in hosts)
    return Heard(ranks, hosts, tuple(use for use in uses if use is not None), _lateness(timeline))


def summarise(heard: Heard, timeline: Timeline) -> Noise:
    """Raises DamagedBundle for a device window whose figures are no numbers."""
    ranks, hosts, devices = heard.ranks, heard.hosts, _windows(timeline, "device")
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
        load=_spread(_figures(hosts, "load")),
        runnable=_spread(_figures(hosts, "runnable")),
        cpu_mhz=_clock(_figures(ranks, "cpu_mhz")),
        device_mhz=_clock(_figures(devices, "sm_clock_mhz_mean")),
        device_temperature=_spread(_figures(devices, "temperature_max")),
        device_throttling=throttle_reasons(timeline),
        device_others=_spread(_figures(devices, "other_processes")),
        stragglers=_stragglers(heard.late, timeline),
    )


def total(windows: Iterable[_Window], *names: str) -> float | None:
    """Of these figures over all windows; null where one of them does not tell one."""
    values: list[Any] = [window.get(name) for window in windows for name in names]
    return None if None in values else math.fsum(values)


def _rate(ranks: _Windows, name: str, per: tuple[str, ...] = ("seconds",), least: bool = False) -> Spread | None:
    """Total over total; ranks that do not tell it are left out."""
    both = {rank: (total(windows, name), total(windows, *per)) for rank, windows in ranks.items()}
    known = {rank: (above, below) for rank, (above, below) in both.items() if above is not None and below}
    if not known:
        return None
    shares = {rank: above / below for rank, (above, below) in known.items()}
    worst = (min if least else max)(shares, key=lambda rank: shares[rank])
    whole = math.fsum(below for _, below in known.values())
    return Spread(mean=math.fsum(above for above, _ in known.values()) / whole, worst=shares[worst], rank=worst)


def _figures(windows: _Windows, name: str) -> dict[int, list[float | None]]:
    return {rank: [_figure(window, name) for window in known] for rank, known in windows.items()}


def _figure(window: _Window | None, name: str) -> float | None:
    """A number of a window, null where it tells none. Raises DamagedBundle for anything else."""
    value = None if window is None else window.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < 1e18:
        raise DamagedBundle(f"a device window's {name} is {ascii(value)[:40]}, not a number from 0")
    return float(value)


def _spread(values: Mapping[int, Sequence[Any]]) -> Spread | None:
    """The mean of all values, and the greatest; ranks that do not know one each time are left out."""
    known = {rank: found for rank, found in values.items() if None not in found}
    if not known:
        return None
    worst = max(known, key=lambda rank: max(known[rank]))
    every = [value for found in known.values() for value in found]
    return Spread(mean=math.fsum(every) / len(every), worst=max(known[worst]), rank=worst)


def _clock(values: Mapping[int, Sequence[Any]]) -> ClockRange | None:
    """Of the rank with the largest step, in proportion."""
    known = [(rank, found) for rank, found in values.items() if all(found)]
    ranges = [ClockRange(lowest=min(found), highest=max(found), rank=rank) for rank, found in known]
    return max(ranges, key=lambda one: one.highest / one.lowest, default=None)


def _windows(timeline: Timeline, field: str) -> dict[int, list[_Window]]:
    """Of the ranks that have this field in each counted iteration."""
    found: dict[Any, list[_Window]] = defaultdict(list)
    for event in timeline.counted_events():
        if window := getattr(event, field):
            found[event.rank].append(window)
    return {rank: windows for rank, windows in found.items() if len(windows) == len(timeline.counted)}


def _use(
    rank: int, host: Sequence[_Window], ranks: _Windows, peers: Sequence[int], timeline: Timeline
) -> HostUse | None:
    """Of the CPUs that ``rank`` tells of and its ``peers`` run on too; null where one of them does not tell its own."""
    busy, seconds, cpus = total(host, "busy_seconds"), total(host, "seconds"), host[0].get("cpus")
    own: list[Any] = [total(ranks.get(peer, [{}]), "cpu_seconds") for peer in peers]
    if busy is None or not seconds or not cpus or None in own:
        return None
    used, measure = math.fsum(own), timeline.manifest.measure
    needed = len(peers) * measure.threads_per_rank if measure.device == "cpu" else None
    return HostUse(rank, int(cpus), needed, used / seconds, max(0.0, busy - used) / seconds)


def _place(events: Events, rank: int) -> tuple[str, str]:
    """The host and the CPUs that a rank runs on, as it names them."""
    start, cpus = next(iter(events.of(rank, Start)), None), inner(facts_of(events, rank), "affinity", "cpus")
    return (start.host if start else "", cpus if isinstance(cpus, str) else "")


def _lateness(timeline: Timeline) -> dict[int, dict[int, float]]:
    """By iteration and rank: for each phase at whose end it came last, how long after the last but one."""
    times, counted = timeline.training.times, timeline.counted
    late: dict[int, dict[int, float]] = {iteration: {} for iteration in counted}
    waits = times.wait[:, counted]
    if len(waits) > 1:
        last = waits.argmin(axis=0).tolist()
        least, second = np.partition(waits, 1, axis=0)[:2]
        for iteration, of_phases, beyond in zip(counted, last, (second - least).tolist(), strict=True):
            for place, seconds in zip(of_phases, beyond, strict=True):
                if seconds >= 0:  # not NaN: every rank told it
                    rank = times.ranks[place]
                    late[iteration][rank] = late[iteration].get(rank, 0.0) + seconds
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


def energy(timeline: Timeline) -> Energy | None:
    """Joules of all ranks' devices over the counted iterations; null where no iteration carries a device window.

    Of each stretch of successive counted iterations the counter's last reading less its first, so that what passes
    between the iterations is in and nothing is rounded at their edges. A turn is a stretch of its own: what other rows
    draw before it is theirs. Older bundles have the energy of each iteration alone, which is added up.

    Valid only when the iterations last 10 s together and every rank's device was sampled, with its energy, in each.
    Raises DamagedBundle for a window whose figures are no numbers.
    """
    by_rank: dict[Any, dict[int, _Window | None]] = defaultdict(dict)
    for event in timeline.counted_events():
        by_rank[event.rank][event.iteration] = event.device
    windows = [window for of_rank in by_rank.values() for window in of_rank.values()]
    if all(window is None for window in windows):
        return None
    seconds = sum(timeline.counted_seconds)
    reasons = []
    if seconds < SHORTEST_WINDOW_SECONDS:
        reasons.append(f"the counted iterations last {seconds:.3g} s, less than {SHORTEST_WINDOW_SECONDS:g} s")
    if timeline.rules >= 2 and any(window and "energy_counter_end_joules" in window for window in windows):
        joules, problem = _stretches(by_rank.values(), frozenset(timeline.turns))
    else:
        joules, problem = _sum_of_windows(windows)
    reasons += [problem] if problem else []
    if not all(window and _figure(window, "samples") for window in windows):
        reasons.append("the device was not sampled in every iteration of every rank")
    samples = timeline.counts.samples * len(timeline.counted) if timeline.counts else None
    return Energy(
        joules=joules,
        joules_per_sample=joules / samples if joules is not None and samples else None,
        valid=not reasons,
        reasons=tuple(reasons),
    )


def throttle_reasons(timeline: Timeline) -> tuple[str, ...]:
    """What held the clocks back in counted iterations: NVML's names, sorted. Raises DamagedBundle for no texts."""
    reasons: set[str] = set()
    for event in timeline.counted_events():
        found = (event.device or {}).get("throttle_reasons", [])
        if not isinstance(found, list) or not all(isinstance(reason, str) for reason in found):
            raise DamagedBundle("a device window's throttle_reasons are not a list of texts")
        reasons.update(found)
    return tuple(sorted(reasons))


def _sum_of_windows(windows: Sequence[_Window | None]) -> _Total:
    """Each iteration by itself, which leaves out what passes between them."""
    joules = [_figure(window, "energy_joules") for window in windows]
    known = [value for value in joules if value is not None]
    if len(known) < len(joules):
        return None, f"{len(joules) - len(known)} of {len(joules)} windows tell no energy"
    return sum(known), None


def _stretches(by_rank: Iterable[Mapping[int, _Window | None]], turns: frozenset[int]) -> _Total:
    """Last reading less first of every stretch of successive iterations."""
    begins, ends = [], []
    for rank in by_rank:
        for one in sorted(rank):
            if one - 1 not in rank or one in turns:
                begins.append(_figure(rank[one], "energy_counter_begin_joules"))
            if one + 1 not in rank or one + 1 in turns:
                ends.append(_figure(rank[one], "energy_counter_end_joules"))
    used = [end - begin for begin, end in zip(begins, ends, strict=True) if begin is not None and end is not None]
    if len(used) < len(ends):
        missing = sum(reading is None for reading in (*begins, *ends))
        return None, f"{missing} of {2 * len(ends)} readings of the energy counters are missing"
    return (sum(used), None) if min(used) >= 0 else (None, "an energy counter went back")
