"""GPU board energy of the counted iterations, and what held the clocks back."""

from collections.abc import Mapping, Sequence
from typing import Any

from suite.bundle.event_fields import Iteration
from suite.bundle.events import Events
from suite.bundle.facts import derivation
from suite.bundle.files import DamagedBundle
from suite.bundle.record import Energy
from suite.bundle.timeline import Timeline
from suite.spec.manifest import Manifest

#: Power sensors see about a quarter of the run time on A100 and H100 (arXiv 2312.02741), so short windows say little.
SHORTEST_WINDOW_SECONDS = 10.0
#: A rank's device windows by iteration.
_Windows = dict[int, dict[str, Any] | None]
#: Joules, null where they are not known, and why not.
_Total = tuple[float | None, str | None]


def energy(events: Events, timeline: Timeline, manifest: Manifest) -> Energy | None:
    """Joules of all ranks' devices over the counted iterations; null where no iteration carries a device window.

    Of each stretch of successive counted iterations the counter's last reading less its first, so that what passes
    between the iterations is in and nothing is rounded at their edges. A turn is a stretch of its own: what other rows
    draw before it is theirs. Older bundles have the energy of each iteration alone, which is added up.

    Valid only when the iterations last 10 s together and every rank's device was sampled, with its energy, in each.
    Raises DamagedBundle for a window whose figures are no numbers.
    """
    counted = frozenset(timeline.counted)
    windows: list[_Windows] = [
        {event.iteration: event.device for event in events.of(rank, Iteration) if event.iteration in counted}
        for rank in range(manifest.layout.ranks)
    ]
    if all(window is None for rank in windows for window in rank.values()):
        return None
    seconds = sum(timeline.counted_seconds)
    reasons = []
    if seconds < SHORTEST_WINDOW_SECONDS:
        reasons.append(f"the counted iterations last {seconds:.3g} s, less than {SHORTEST_WINDOW_SECONDS:g} s")
    total, problem = _stretches(windows, events, frozenset(timeline.turns)) or _sum_of_windows(windows)
    reasons += [problem] if problem else []
    if not all(window and window_figure(window, "samples") for rank in windows for window in rank.values()):
        reasons.append("the device was not sampled in every iteration of every rank")
    samples = timeline.counts.samples * len(timeline.counted) if timeline.counts else None
    return Energy(
        joules=total,
        joules_per_sample=total / samples if total is not None and samples else None,
        valid=not reasons,
        reasons=tuple(reasons),
    )


def throttle_notes(events: Events, timeline: Timeline) -> tuple[str, ...]:
    """Which limits held the clocks back in counted iterations, as the sampler saw them."""
    reasons = throttle_reasons(events, timeline)
    return (f"clocks were held back by: {', '.join(reasons)}",) if reasons else ()


def throttle_reasons(events: Events, timeline: Timeline) -> tuple[str, ...]:
    """By NVML's names, sorted. Raises DamagedBundle for a window whose reasons are no texts."""
    reasons: set[str] = set()
    counted = frozenset(timeline.counted)
    for window in (event.device for event in events.of_all(Iteration) if event.iteration in counted and event.device):
        found = window.get("throttle_reasons", [])
        if not isinstance(found, list) or not all(isinstance(reason, str) for reason in found):
            raise DamagedBundle("a device window's throttle_reasons are not a list of texts")
        reasons.update(found)
    return tuple(sorted(reasons))


def _sum_of_windows(windows: Sequence[_Windows]) -> _Total:
    """Each iteration by itself, which leaves out what passes between them."""
    joules = [window_figure(window, "energy_joules") for rank in windows for window in rank.values()]
    known = [value for value in joules if value is not None]
    if len(known) < len(joules):
        return None, f"{len(joules) - len(known)} of {len(joules)} windows tell no energy"
    return sum(known), None


def _stretches(windows: Sequence[_Windows], events: Events, turns: frozenset[int]) -> _Total | None:
    """Last reading less first of every stretch of successive iterations; null where no window has readings."""
    known = any(window and "energy_counter_end_joules" in window for rank in windows for window in rank.values())
    if derivation(events) < 2 or not known:
        return None
    begins, ends = [], []
    for rank in windows:
        for one in sorted(rank):
            if one - 1 not in rank or one in turns:
                begins.append(window_figure(rank[one], "energy_counter_begin_joules"))
            if one + 1 not in rank or one + 1 in turns:
                ends.append(window_figure(rank[one], "energy_counter_end_joules"))
    used = [end - begin for begin, end in zip(begins, ends, strict=True) if begin is not None and end is not None]
    if len(used) < len(ends):
        missing = sum(reading is None for reading in (*begins, *ends))
        return None, f"{missing} of {2 * len(ends)} readings of the energy counters are missing"
    return (sum(used), None) if min(used) >= 0 else (None, "an energy counter went back")


def window_figure(window: Mapping[str, Any] | None, name: str) -> float | None:
    """A number of a device window, null where it tells none. Raises DamagedBundle for anything else."""
    value = None if window is None else window.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < 1e18:
        raise DamagedBundle(f"a device window's {name} is {ascii(value)[:40]}, not a number from 0")
    return float(value)
