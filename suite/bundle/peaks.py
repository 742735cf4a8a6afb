"""Peak memory over ranks and phases, against the floor."""

from __future__ import annotations

from collections.abc import Sequence

from suite.bundle.amounts import Peaks
from suite.bundle.events import SETUP, Event, Events
from suite.bundle.facts import derivation, facts_of
from suite.bundle.files import DamagedBundle
from suite.bundle.per_manifest import once_per_manifest
from suite.bundle.record import Floor, Memory
from suite.spec.manifest import Manifest
from suite.theory.memory import Rules, memory_floor

_NAMES = tuple(Peaks.model_fields)
_NOTHING = dict.fromkeys(_NAMES)
_Values = dict[str, int | None]


def memory(events: Events, counted: Sequence[int], manifest: Manifest) -> Memory:
    """Peaks of the counted iterations, and the floor, which needs no run. Raises DamagedBundle.

    Of a split run ``events`` are those of the training side, as is the floor. A rank's peak is the largest that it
    knows; over ranks it is null where a rank knows none.
    """
    indices, world = frozenset(counted), manifest.layout.training_ranks
    reports = [
        [event for event in events.of(rank, "memory") if event["phase"] == SETUP or event["iteration"] in indices]
        for rank in range(world)
    ]
    counted_reports = [[event for event in rank if event["phase"] != SETUP] for rank in reports]
    per_rank = [_largest(rank) for rank in counted_reports]
    peaks = _over_ranks(per_rank, largest=True)
    floor = _floor(manifest, 1 if derivation(events) == 1 else 2)
    reserved = peaks["peak_allocated_bytes" if manifest.measure.device == "cpu" else "peak_reserved_bytes"]
    return Memory(
        **peaks,
        resident_baseline_bytes=_baseline(events, world),
        theoretical_minimum_bytes=floor.bytes,
        efficiency=_ratio(floor.bytes, reserved),
        efficiency_allocated=_ratio(floor.bytes, peaks["peak_allocated_bytes"]),
        by_phase=_by_phase(reports),
        min_over_ranks=Peaks(**_over_ranks(per_rank, largest=False)),
        allocation_retries=_retries(events, indices, world),
        floor=floor,
    )


def side_peaks(events: Events, counted: Sequence[int]) -> Peaks:
    """The peaks of these ranks alone in the counted iterations."""
    indices = frozenset(counted)
    reports = [[event for event in events.of(rank, "memory") if event["iteration"] in indices] for rank in events.ranks]
    return Peaks(**_over_ranks([_largest(rank) for rank in reports], largest=True))


@once_per_manifest
def _floor(manifest: Manifest, rules: Rules) -> Floor:
    work, precision = manifest.work, manifest.measure.precision
    floor = memory_floor(manifest.size, manifest.workload, work, manifest.layout, precision, rules)
    return Floor(bytes=floor.bytes, phase=floor.phase, parts=floor.parts, by_phase=floor.by_phase)


def _largest(reports: Sequence[Event]) -> _Values:
    """The largest known value of each peak; null where none is known."""
    largest: _Values = dict(_NOTHING)
    for name in _NAMES:
        known = [value for value in [event[name] for event in reports] if value is not None]
        if known:
            largest[name] = max(known)
    return largest


def _over_ranks(per_rank: Sequence[_Values], largest: bool) -> _Values:
    result: _Values = dict(_NOTHING)
    for name in _NAMES:
        known = [value for value in (values[name] for values in per_rank) if value is not None]
        if known and len(known) == len(per_rank):
            result[name] = max(known) if largest else min(known)
    return result


def _by_phase(reports: Sequence[Sequence[Event]]) -> dict[str, Peaks]:
    by_phase: dict[str, list[list[Event]]] = {}
    for number, rank in enumerate(reports):
        for event in rank:
            by_phase.setdefault(event["phase"], [[] for _ in reports])[number].append(event)
    return {
        phase: Peaks(**_over_ranks([_largest(rank) for rank in ranks], largest=True))
        for phase, ranks in by_phase.items()
    }


def _retries(events: Events, counted: frozenset[int], world: int) -> int | None:
    """Growth of each rank's counter over the counted iterations, summed over ranks; null where one does not count."""
    total, first = 0, min(counted, default=0)
    for rank in range(world):
        reports = events.of(rank, "memory")
        if any(event["allocation_retries"] is None for event in reports):
            return None
        before = [
            event["allocation_retries"] for event in reports if event["phase"] == SETUP or event["iteration"] < first
        ]
        during = [
            event["allocation_retries"]
            for event in reports
            if event["phase"] != SETUP and event["iteration"] in counted
        ]
        if not during:
            return None
        total += max(0, during[-1] - (before[-1] if before else 0))
    return total


def _baseline(events: Events, world: int) -> int | None:
    """Resident bytes before the model was built: the largest of all ranks, null where one does not say."""
    found: list[int] = []
    for rank in range(world):
        value = facts_of(events, rank).get("resident_baseline_bytes")
        if value is None:
            return None
        if type(value) is not int or value < 0:
            raise DamagedBundle(f"events/rank-{rank}.jsonl: resident_baseline_bytes is {ascii(value)[:40]}, not bytes")
        found.append(value)
    return max(found)


def _ratio(floor: int, peak: int | None) -> float | None:
    return floor / peak if peak else None
