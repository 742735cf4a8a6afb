"""Figures that no device of the kind can have: phases, messages and memory against its peaks and the run's own work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from suite.bundle.events import Events
from suite.bundle.facts import facts_of, inner, listed_objects, positive
from suite.bundle.record import Compute, Memory, Phases
from suite.bundle.utilisation import device_of, phase_flops
from suite.spec.device import Device
from suite.spec.manifest import Manifest
from suite.theory.parameters import parameter_count
from suite.theory.shards import WEIGHT_BYTES

#: Larger than the last cache of any device in the catalogue, which therefore reads weights anew in every step.
_BEYOND_CACHE_BYTES = 1 << 30
#: What a rank of an engine holds in every phase.
_STATES = ("weights", "reference", "optimizer")


def impossible_figures(
    events: Events, work: Compute | None, phases: Phases | None, memory: Memory, manifest: Manifest
) -> Iterator[str]:
    """One line for each. Of trainers, which may leave out or move what the suite's engines do and hold, only messages
    are judged; of split runs, whose phases are waits, no phase."""
    device, _ = device_of(events, manifest)
    if device is None:
        return
    yield from _messages(facts_of(events, 0).get("network"), device)
    if manifest.backend.kind != "engine":
        return
    peak = memory.peak_device_bytes if memory.peak_reserved_bytes is None else memory.peak_reserved_bytes
    least = 0 if memory.floor is None else sum(memory.floor.parts.get(part, 0) for part in _STATES)
    if peak is not None and peak < least:
        yield f"the peak is {peak / 1e9:.3g} GB, {' and '.join(_STATES)} of the layout take {least / 1e9:.3g}"
    if manifest.layout.placement == "colocated" and work is not None and phases is not None:
        yield from _too_quick(events, work, phases, manifest)


def _too_quick(events: Events, work: Compute, phases: Phases, manifest: Manifest) -> Iterator[str]:
    """Causal attention is what is computed at least; a cache of keys and values may lie in the device's own."""
    for name, flops in phase_flops(events, manifest).items():
        phase, peak = getattr(phases, name), (work.peak_flops or math.inf) * manifest.layout.ranks
        least = flops / peak
        if phase is not None and 0 < phase.seconds < least:
            yield f"{name} took {phase.seconds:.3g} s, its products take {least:.3g} s at the peak of the device"
    weights = parameter_count(manifest.size).total * WEIGHT_BYTES[manifest.measure.precision] / manifest.layout.tensor
    is_read = manifest.size.experts is None and manifest.layout.generation == "hf" and weights > _BEYOND_CACHE_BYTES
    if is_read and work.mbu is not None and work.mbu > 1:
        yield f"decoding read {work.mbu:.3g} times what the device's memory gives in its time"


def _messages(network: Any, device: Device) -> Iterator[str]:
    """In a node a device sends with half of its link, and a switch that adds up saves at most the other half."""
    link = device.link_bytes_per_second
    for one in listed_objects(inner(network, "measurements")):
        rates = [positive(size.get("bus_bytes_per_second")) or 0.0 for size in listed_objects(one.get("sizes"))]
        if link is None or one.get("scope") != "within_node":
            continue
        most = link if one.get("pattern") == "all_reduce" else link / 2
        if max(rates, default=0.0) > most:
            yield (
                f"{max(rates) / 1e9:.3g} GB/s is the bus bandwidth of {ascii(one.get('pattern'))[:40]} within a node, "
                f"whose links carry {most / 1e9:.3g} at most"
            )
