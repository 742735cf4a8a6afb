"""Whether the peaks of memory that ranks tell fit each other, what was resident before, and the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from suite.bundle.event_fields import Memory
from suite.bundle.events import SETUP, Events
from suite.bundle.facts import facts_of
from suite.bundle.findings import Finding, one_of
from suite.bundle.record import Record
from suite.spec.manifest import Manifest

#: A process gives back little of what it had before there was a model.
_RESIDENT_SHARE = 0.8
#: What a device holds beside the allocator's memory hardly grows while a model is built.
_OUTSIDE_BYTES, _OUTSIDE_SHARE = 256 << 20, 0.1
#: The floor is the least that there can be; it knows no page that is shared or given back.
_FLOOR_RATIO = 1.25


def memory_findings(events: Events, manifest: Manifest, record: Record) -> Iterator[Finding]:
    """Peaks that their own rank contradicts, and a run that needed less than there must be."""
    cuda = manifest.measure.device == "cuda"
    wrong = [
        f"{text} in {event.phase} of rank {rank}"
        for rank in events.ranks
        for facts in (facts_of(events, rank),)
        for event in events.of(rank, Memory)
        for text in _wrong_peaks(event, facts, cuda)
    ]
    yield from one_of("memory-peaks", wrong)
    memory = record.memory
    efficiency = None if memory is None else memory.efficiency
    if memory is not None and efficiency is not None and efficiency > _FLOOR_RATIO:
        text = f"the peak is {1 / efficiency:.3g} of the {memory.theoretical_minimum_bytes} bytes that the layout needs"
        yield Finding(name="memory-floor", text=text)


def _wrong_peaks(event: Memory, facts: dict[str, Any], cuda: bool) -> Iterator[str]:
    allocated, reserved = event.peak_allocated_bytes, event.peak_reserved_bytes
    resident, baseline = event.peak_resident_bytes, facts.get("resident_baseline_bytes")
    if resident is not None and type(baseline) is int:
        if resident < _RESIDENT_SHARE * baseline:
            yield f"{resident} bytes were resident at the peak, {baseline} before there was a model,"
        if not cuda and allocated is not None and allocated != max(0, resident - baseline):
            yield f"{allocated} bytes at the peak are not the {resident} that were resident less {baseline} before"
    if allocated is not None and reserved is not None and allocated > reserved:
        yield f"{allocated} bytes were allocated at the peak, of {reserved} reserved,"
    if cuda:
        yield from _wrong_on_device(event, facts)


def _wrong_on_device(event: Memory, facts: dict[str, Any]) -> Iterator[str]:
    reserved, used = event.peak_reserved_bytes, event.peak_device_bytes
    device, joined = facts.get("device"), facts.get("communicators")
    total = device.get("memory_bytes") if isinstance(device, dict) else None
    if type(total) is int and max(reserved or 0, used or 0) > total:
        yield f"{max(reserved or 0, used or 0)} bytes were used of a device of {total}"
    outside = joined.get("outside_allocator_bytes") if isinstance(joined, dict) else None
    built = outside.get("built") if isinstance(outside, dict) else None
    if event.phase == SETUP and type(built) is int and reserved is not None and used is not None:
        beside = used - reserved
        if beside - built > _OUTSIDE_BYTES + _OUTSIDE_SHARE * used:
            yield f"{beside} bytes lay beside the {reserved} reserved ones, {built} by the rank's facts,"
