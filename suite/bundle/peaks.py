"""Peak memory over ranks and phases, against the floor."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

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
#: One for each of these names.
_Values = tuple[int | None, ...]
_NOTHING: _Values = (None,) * len(_NAMES)
_values = attrgetter(*_NAMES)


def memory(events: Events, counted: Sequence[int], manifest: Manifest) -> Memory:
    """Peaks of the counted iterations, and the floor, which needs no run. Raises DamagedBundle.

    Of a split run ``events`` are those of the training side, as is the floor. A rank's peak is the largest that it
    knows; over ranks it is null where a rank knows none.
    """
    indices, world = frozenset(counted), manifest.layout.training_ranks
    by_phase = [_by_phase(events.of(rank, Report), indices) for rank in range(world)]
    per_rank = list(map(_largest_of_phases, by_phase))
    peaks = _over_ranks(per_rank, max)
    floor = _floor(manifest, 1 if derivation(events) == 1 else 2)
    allocated = peaks.peak_allocated_bytes
    reserved = allocated if manifest.measure.device == "cpu" else peaks.peak_reserved_bytes
    return Memory(
        **dict(peaks),
        resident_baseline_bytes=_baseline(events, world),
        theoretical_minimum_bytes=floor.bytes,
        efficiency=floor.bytes / reserved if reserved else None,
        efficiency_allocated=floor.bytes / allocated if allocated else None,
        by_phase={
            phase: _over_ranks([rank.get(phase, _NOTHING) for rank in by_phase], max)
            for phase in dict.fromkeys(phase for rank in by_phase for phase in rank)
        },
        min_over_ranks=_over_ranks(per_rank, min),
        allocation_retries=_retries(events, indices, world),
        floor=floor,
    )


def side_peaks(events: Events, counted: Sequence[int]) -> Peaks:
    """The peaks of these ranks alone in the counted iterations."""
    indices = frozenset(counted)
    by_phase = (_by_phase(events.of(rank, Report), indices) for rank in events.ranks)
    return _over_ranks(list(map(_largest_of_phases, by_phase)), max)


@once_per_manifest
def _floor(manifest: Manifest, rules: Rules) -> Floor:
    work, precision = manifest.work, manifest.measure.precision
    floor = memory_floor(manifest.size, manifest.workload, work, manifest.layout, precision, rules)
    return Floor(bytes=floor.bytes, phase=floor.phase, parts=floor.parts, by_phase=floor.by_phase)


def _by_phase(reports: Sequence[Report], counted: frozenset[int]) -> dict[str, _Values]:
    """Of the set-up and the counted iterations."""
    known: dict[str, list[_Values]] = {}
    for report in reports:
        if report.phase == SETUP or report.iteration in counted:
            known.setdefault(report.phase, []).append(_values(report))
    return {phase: _largest(values) for phase, values in known.items()}


def _largest_of_phases(by_phase: Mapping[str, _Values]) -> _Values:
    return _largest([values for phase, values in by_phase.items() if phase != SETUP])


def _largest(known: Sequence[_Values]) -> _Values:
    """Each of those that are known; null where none is."""
    columns = zip(_NOTHING, *known, strict=True)
    return tuple(max((value for value in column if value is not None), default=None) for column in columns)


def _over_ranks(per_rank: Sequence[_Values], choose: Callable[[Any], int]) -> Peaks:
    """Each null where a rank does not know it."""
    columns = zip(_NAMES, zip(*per_rank, strict=True), strict=True)
    return Peaks(**{name: None if None in values else choose(values) for name, values in columns})


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
