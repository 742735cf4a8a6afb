"""What was around the counted iterations: the noise that each rank and each host told with them, summed up, the energy
of their GPU boards, and what held the clocks back."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
#: Figures of a GPU's window that a record has.
_OF_DEVICE = ("sm_clock_mhz_mean", "temperature_max", "other_processes")
#: Power sensors see about a quarter of the run time on A100 and H100 (arXiv 2312.02741), so short windows say little.
SHORTEST_WINDOW_SECONDS = 10.0
#: By figure, of each rank that tells it with every counted iteration: what it tells.
Told = Mapping[str, Mapping[int, Sequence[float]]]
_Window = Mapping[str, Any]
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
    """What was told with the counted iterations. ``late``: seconds that a rank came last, by iteration and rank."""

    told: Told
    uses: tuple[HostUse, ...]
    late: dict[int, dict[int, float]]


def hear(timeline: Timeline) -> Heard:
    told = _told(timeline)
    return Heard(told, tuple(_uses(told, timeline)), _lateness(timeline))


def summarise(heard: Heard, timeline: Timeline) -> Noise:
    told = heard.told
    return Noise(
        cpu_share=_rate(told, "thread_cpu_seconds", least=True),
        cpus_used=_rate(told, "cpu_seconds"),
        cpu_wait_share=_rate(told, "cpu_wait_seconds"),
        involuntary_switches=_rate(told, "involuntary_switches", per=("cpu_seconds",)),
        major_faults=_rate(told, "major_faults"),
        minor_faults=_rate(told, "minor_faults"),
        throttled_share=_rate(told, "throttled_seconds"),
        others_cpus=_spread({use.rank: [use.others] for use in heard.uses}),
        steal_share=_rate(told, "host.steal_seconds", per=("host.steal_seconds", "host.busy_seconds")),
        cpu_pressure_share=_rate(told, "host.cpu_pressure_seconds"),
        memory_pressure_share=_rate(told, "host.memory_pressure_seconds"),
        load=_spread(told["host.load"]),
        runnable=_spread(told["host.runnable"]),
        cpu_mhz=_clock(told["cpu_mhz"]),
        device_mhz=_clock(told["device.sm_clock_mhz_mean"]),
        device_temperature=_spread(told["device.temperature_max"]),
        device_throttling=throttle_reasons(timeline),
        device_others=_spread(told["device.other_processes"]),
        stragglers=_stragglers(heard.late, timeline),
    )


def _told(timeline: Timeline) -> Told:
    """Of the noise, of the host in it, and of the device, whose figures anybody may have written."""
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for event in timeline.counted_events():
        noise: dict[str, Any] = event.noise or {}
        host, device = noise.get("host") or {}, event.device or {}
        windows = (("", noise, noise.keys() - {"host"}), ("host.", host, host), ("device.", device, _OF_DEVICE))
        for whose, window, names in windows:
            for name in names:
                value = _figure(window, name)
                if value is not None:
                    found[whose + name][event.rank or 0].append(value)
    known: dict[str, dict[int, list[float]]] = defaultdict(dict)
    for name, by_rank in found.items():
        known[name] = {rank: values for rank, values in by_rank.items() if len(values) == len(timeline.counted)}
    return known


def _figure(window: _Window, name: str) -> float | None:
    """A number of a window, null where it tells none. Raises DamagedBundle for anything else."""
    value = window.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < 1e18:
        raise DamagedBundle(f"a device window's {name} is {ascii(value)[:40]}, not a number from 0")
    return float(value)


def _rate(told: Told, name: str, per: tuple[str, ...] = ("seconds",), least: bool = False) -> Spread | None:
    """Total over total; ranks that do not tell it are left out."""
    both: dict[int, tuple[float, float]] = {}
    for rank, values in told[name].items():
        below = math.fsum(value for one in per for value in told[one].get(rank, ()))
        if below and all(rank in told[one] for one in per):
            both[rank] = math.fsum(values), below
    if not both:
        return None
    shares = {rank: above / below for rank, (above, below) in both.items()}
    worst = (min if least else max)(shares, key=lambda rank: shares[rank])
    whole = math.fsum(below for _, below in both.values())
    return Spread(mean=math.fsum(above for above, _ in both.values()) / whole, worst=shares[worst], rank=worst)


def _spread(known: Mapping[int, Sequence[float]]) -> Spread | None:
    """The mean of all values, and the greatest."""
    if not known:
        return None
    worst = max(known, key=lambda rank: max(known[rank]))
    every = [value for found in known.values() for value in found]
    return Spread(mean=math.fsum(every) / len(every), worst=max(known[worst]), rank=worst)


def _clock(values: Mapping[int, Sequence[float]]) -> ClockRange | None:
    """Of the rank with the largest step, in proportion."""
    known = [(rank, found) for rank, found in values.items() if all(found)]
    ranges = [ClockRange(lowest=min(found), highest=max(found), rank=rank) for rank, found in known]
    return max(ranges, key=lambda one: one.highest / one.lowest, default=None)


def _uses(told: Told, timeline: Timeline) -> Iterator[HostUse]:
    """Of each rank that tells of CPUs on which other ranks run too, all of which tell what they used."""
    measure, places = timeline.manifest.measure, {rank: _place(timeline.events, rank) for rank in timeline.events.ranks}
    for rank, busy in told["host.busy_seconds"].items():
        peers = [peer for peer, place in places.items() if place == places[rank]]
        seconds, cpus = math.fsum(told["seconds"].get(rank, ())), told["host.cpus"].get(rank, (0,))[0]
        if seconds and cpus and told["cpu_seconds"].keys() >= set(peers):
            used = math.fsum(math.fsum(told["cpu_seconds"][peer]) for peer in peers)
            needed = len(peers) * measure.threads_per_rank if measure.device == "cpu" else None
            others = max(0.0, math.fsum(busy) - used) / seconds
            yield HostUse(rank, int(cpus), needed, used / seconds, others)


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
    """
    if all(event.device is None for event in timeline.counted_events()):
        return None
    by_rank: dict[Any, dict[int, _Window]] = defaultdict(dict)
    for event in timeline.counted_events():
        by_rank[event.rank][event.iteration] = event.device or {}
    windows = [window for of_rank in by_rank.values() for window in of_rank.values()]
    seconds = sum(timeline.counted_seconds)
    reasons = []
    if seconds < SHORTEST_WINDOW_SECONDS:
        reasons.append(f"the counted iterations last {seconds:.3g} s, less than {SHORTEST_WINDOW_SECONDS:g} s")
    if timeline.rules >= 2 and any("energy_counter_end_joules" in window for window in windows):
        joules, problem = _stretches(by_rank.values(), frozenset(timeline.turns))
    else:
        joules, problem = _sum_of_windows(windows)
    reasons += [problem] if problem else []
    if not all(_figure(window, "samples") for window in windows):
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


def _sum_of_windows(windows: Sequence[_Window]) -> _Total:
    """Each iteration by itself, which leaves out what passes between them."""
    joules = [_figure(window, "energy_joules") for window in windows]
    known = [value for value in joules if value is not None]
    if len(known) < len(joules):
        return None, f"{len(joules) - len(known)} of {len(joules)} windows tell no energy"
    return sum(known), None


def _stretches(by_rank: Iterable[Mapping[int, _Window]], turns: frozenset[int]) -> _Total:
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
