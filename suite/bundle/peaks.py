"""Peak memory over ranks and phases, against the floor."""

from collections.abc import Iterable, Sequence
from operator import attrgetter

from suite.bundle.amounts import Peaks
from suite.bundle.event_fields import Memory as Report
from suite.bundle.events import SETUP, Events
from suite.bundle.facts import derivation, facts_of
from suite.bundle.files import DamagedBundle
from suite.bundle.per_manifest import once_per_manifest
from suite.bundle.record import Floor, Memory
from suite.spec.manifest import Manifest
from suite.theory.memory import Rules, memory_floor

_NAMES = tuple(Peaks.model_fields)
_NOTHING = dict.fromkeys(_NAMES)
_Values = dict[str, int | None]
_values = attrgetter(*_NAMES)
#: Of one rank, by phase.
_ByPhase = dict[str, _Values]


def memory(events: Events, counted: Sequence[int], manifest: Manifest) -> Memory:
    """Peaks of the counted iterations, and the floor, which needs no run. Raises DamagedBundle.

    Of a split run ``events`` are those of the training side, as is the floor. A rank's peak is the largest that it
    knows; over ranks it is null where a rank knows none.
    """
    indices, world = frozenset(counted), manifest.layout.training_ranks
    by_phase = [_by_phase(events.of(rank, Report), indices) for rank in range(world)]
    per_rank = [_largest(of_phase for phase, of_phase in rank.items() if phase != SETUP) for rank in by_phase]
    peaks = _over_ranks(per_rank, largest=True)
    floor = _floor(manifest, 1 if derivation(events) == 1 else 2)
    reserved = peaks["peak_allocated_bytes" if manifest.measure.device == "cpu" else "peak_reserved_bytes"]
    return Memory(
        **peaks,
        resident_baseline_bytes=_baseline(events, world),
        theoretical_minimum_bytes=floor.bytes,
        efficiency=_ratio(floor.bytes, reserved),
        efficiency_allocated=_ratio(floor.bytes, peaks["peak_allocated_bytes"]),
        by_phase={
            phase: Peaks(**_over_ranks([rank.get(phase, _NOTHING) for rank in by_phase], largest=True))
            for phase in dict.fromkeys(phase for rank in by_phase for phase in rank)
        },
        min_over_ranks=Peaks(**_over_ranks(per_rank, largest=False)),
        allocation_retries=_retries(events, indices, world),
        floor=floor,
    )


def side_peaks(events: Events, counted: Sequence[int]) -> Peaks:
    """The peaks of these ranks alone in the counted iterations."""
    indices = frozenset(counted)
    by_phase = [_by_phase(events.of(rank, Report), indices) for rank in events.ranks]
    per_rank = [_largest(of_phase for phase, of_phase in rank.items() if phase != SETUP) for rank in by_phase]
    return Peaks(**_over_ranks(per_rank, largest=True))


@once_per_manifest
def _floor(manifest: Manifest, rules: Rules) -> Floor:
    work, precision = manifest.work, manifest.measure.precision
    floor = memory_floor(manifest.size, manifest.workload, work, manifest.layout, precision, rules)
    return Floor(bytes=floor.bytes, phase=floor.phase, parts=floor.parts, by_phase=floor.by_phase)


def _by_phase(reports: Sequence[Report], counted: frozenset[int]) -> _ByPhase:
    """Of the set-up and the counted iterations."""
    known: dict[str, list[tuple[int | None, ...]]] = {}
    for report in reports:
        if report.phase == SETUP or report.iteration in counted:
            known.setdefault(report.phase, []).append(_values(report))
    return {
        phase: dict(zip(_NAMES, map(_greatest, zip(*values, strict=True)), strict=True))
        for phase, values in known.items()
    }


def _greatest(values: Iterable[int | None]) -> int | None:
    """Of those that are known; null where none is."""
    return max((value for value in values if value is not None), default=None)


def _largest(reports: Iterable[_Values]) -> _Values:
    known = list(reports)
    return {name: _greatest(values[name] for values in known) for name in _NAMES}


def _over_ranks(per_rank: Sequence[_Values], largest: bool) -> _Values:
    result: _Values = dict(_NOTHING)
    for name in _NAMES:
        known = [value for value in (values[name] for values in per_rank) if value is not None]
        if known and len(known) == len(per_rank):
            result[name] = max(known) if largest else min(known)
    return result


def _retries(events: Events, counted: frozenset[int], world: int) -> int | None:
    """Growth of each rank's counter over the counted iterations, summed over ranks; null where one does not count."""
    total, first = 0, min(counted, default=0)
    for rank in range(world):
        before, during = [], []
        for report in events.of(rank, Report):
            if report.allocation_retries is None:
                return None
            if report.phase == SETUP or report.iteration is None or report.iteration < first:
                before.append(report.allocation_retries)
            elif report.iteration in counted:
                during.append(report.allocation_retries)
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
