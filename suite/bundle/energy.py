"""GPU board energy of the counted iterations, and what held the clocks back."""

from __future__ import annotations

from suite.bundle.events import Event, Events
from suite.bundle.files import DamagedBundle
from suite.bundle.record import Energy
from suite.bundle.timeline import Timeline
from suite.spec.manifest import Manifest

#: Power sensors see about a quarter of the run time on A100 and H100 (arXiv 2312.02741), so short windows say little.
SHORTEST_WINDOW_SECONDS = 10.0


def energy(events: Events, timeline: Timeline, manifest: Manifest) -> Energy | None:
    """Joules of all ranks' devices over the counted iterations; null where no iteration carries a device window.

    Valid only when the iterations last 10 s together and every rank's device was sampled, with its energy, in each.
    Raises DamagedBundle for a window whose figures are no numbers.
    """
    windows = _windows(events, timeline.counted, manifest.layout.ranks)
    if not any(window is not None for window in windows):
        return None
    joules = [None if window is None else _figure(window, "energy_joules") for window in windows]
    known = [value for value in joules if value is not None]
    seconds = sum(timeline.counted_seconds)
    reasons = []
    if seconds < SHORTEST_WINDOW_SECONDS:
        reasons.append(f"the counted iterations last {seconds:.3g} s, less than {SHORTEST_WINDOW_SECONDS:g} s")
    if len(known) < len(joules):
        reasons.append(f"{len(joules) - len(known)} of {len(joules)} windows tell no energy")
    if any(window is None or not _figure(window, "samples") for window in windows):
        reasons.append("the device was not sampled in every iteration of every rank")
    total = sum(known) if len(known) == len(joules) else None
    samples = timeline.counts.samples * len(timeline.counted) if timeline.counts else None
    return Energy(
        joules=total,
        joules_per_sample=total / samples if total is not None and samples else None,
        valid=not reasons,
        reasons=tuple(reasons),
    )


def throttle_notes(events: Events, timeline: Timeline, manifest: Manifest) -> tuple[str, ...]:
    """Which limits held the clocks back in counted iterations, as the sampler saw them."""
    reasons: set[str] = set()
    for window in _windows(events, timeline.counted, manifest.layout.ranks):
        found = [] if window is None else window.get("throttle_reasons", [])
        if not isinstance(found, list) or not all(isinstance(reason, str) for reason in found):
            raise DamagedBundle("a device window's throttle_reasons are not a list of texts")
        reasons.update(found)
    return (f"clocks were held back by: {', '.join(sorted(reasons))}",) if reasons else ()


def _windows(events: Events, counted: range, world: int) -> list[Event | None]:
    """The device window of every counted iteration of every rank."""
    return [
        event.get("device")
        for rank in range(world)
        for event in events.ranks.get(rank, ())
        if event["kind"] == "iteration" and event["iteration"] in counted
    ]


def _figure(window: Event, name: str) -> float | None:
    value = window.get(name)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < 1e18:
        raise DamagedBundle(f"a device window's {name} is {ascii(value)[:40]}, not a number from 0")
    return float(value)
