"""What the runs of one row cost together (time by phase, utilisation, memory, energy), and what a planner expected."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from suite.bundle.facts import inner, positive
from suite.bundle.parts import Peaks
from suite.bundle.record import Memory, Record
from suite.spec.phases import ALL, ALL_NAMES
from suite.stats.intervals import Interval, pooled_mean

#: Fields by what a reader calls the peak, the most telling first; the first two are of the run's own tensors.
PEAKS = {
    "reserved": "peak_reserved_bytes",
    "resident": "peak_allocated_bytes",
    "whole device": "peak_device_bytes",
    "all processes": "peak_resident_bytes",
}
OF_THE_RUN = ("reserved", "resident")


@dataclass(frozen=True)
class PhaseCost:
    """One phase over all counted iterations of a row's runs. ``low`` and ``high``: 95 % bounds of ``seconds``.
    ``by_run``: mean seconds per iteration of each run. ``share``: null of an asynchronous row, in whose periods others
    work meanwhile."""

    name: str
    seconds: float
    share: float | None
    low: float | None
    high: float | None
    by_run: tuple[float, ...]

    @property
    def interval(self) -> Interval:
        return Interval(self.seconds, self.low, self.high)


@dataclass(frozen=True)
class Idle:
    """How long ranks wait for the slowest one at the end of phases: mean over ranks, seconds per iteration. ``most``:
    the phase at whose end they wait longest."""

    seconds: float
    share: float
    most: str


@dataclass(frozen=True)
class PhaseMemory:
    """In use at the peak of one phase (allocated on a GPU, resident on a CPU), against the least that it needs."""

    name: str
    peak_bytes: int
    run_peak_bytes: Interval
    floor_bytes: int | None
    efficiency: float | None


@dataclass(frozen=True)
class MemoryUse:
    """The greatest peak over runs and ranks, against the least that the layout needs. ``peak_is``: which peak. On a GPU
    it is what the allocator reserved; what was in use and what the whole device held are beside it (null on a CPU)."""

    peak_bytes: int
    run_peak_bytes: Interval
    peak_is: str
    allocated_bytes: int | None
    device_bytes: int | None
    floor_bytes: int | None
    floor_phase: str | None
    efficiency: float | None
    allocation_retries: int | None
    by_phase: tuple[PhaseMemory, ...]


@dataclass(frozen=True)
class EnergyUse:
    """GPU board energy of a row's runs."""

    joules_per_sample: float | None
    valid: bool
    reasons: tuple[str, ...]


def over_time(records: Sequence[Record], name: str) -> float | None:
    """A field of ``compute``, total over total (harmonic mean, weighted by iterations). Null where a run has none."""
    known = [(rate, record.steady_state.iterations) for record in records if (rate := getattr(record.compute, name, 0))]
    if not known or len(known) < len(records):
        return None
    return sum(weight for _, weight in known) / sum(weight / rate for rate, weight in known)


def phases_of(records: Sequence[Record]) -> tuple[PhaseCost, ...]:
    """Mean seconds per counted iteration over the runs, weighted by their iterations; a phase all runs know."""
    known = [
        {name: phase.seconds for name in ALL_NAMES if (phase := getattr(record.phases, name, None))}
        for record in records
    ]
    return _costs(records, known)


def phase_seconds_of(records: Sequence[Record]) -> tuple[dict[str, tuple[float, ...]], ...]:
    """Of runs in turns, seconds of each timed phase in every counted iteration; empty where one was alone."""
    known = tuple(
        {name: tuple(seconds[index] for index in record.counted) for name, seconds in record.turns.phases.items()}
        for record in records
        if record.turns
    )
    return known if len(known) == len(records) else ()


def parts_of(records: Sequence[Record], whole: float) -> tuple[PhaseCost, ...]:
    """As ``phases_of``, for what all runs time within phases, named ``phase/name``; ``whole``: seconds an iteration."""
    return _costs(records, [record.details or {} for record in records], whole)


def _costs(
    records: Sequence[Record], known: Sequence[Mapping[str, float]], whole: float | None = None
) -> tuple[PhaseCost, ...]:
    """What each run takes by name, as far as all of them tell; shares are of ``whole``, else of all together."""
    shared = [name for name in (known[0] if known else ()) if all(name in seconds for seconds in known)]
    found = {name: tuple(seconds[name] for seconds in known) for name in shared}
    weights = [record.steady_state.iterations for record in records]
    pooled = {name: pooled_mean(seconds, weights) for name, seconds in found.items()} if sum(weights) else {}
    total = sum(interval.value for interval in pooled.values()) if whole is None else whole
    is_whole = not any(record.run.layout.asynchronous for record in records)
    return tuple(
        PhaseCost(name, one.value, one.value / total if is_whole else None, one.low, one.high, found[name])
        for name, one in (pooled.items() if total else ())
    )


def idle_of(records: Sequence[Record], whole: float) -> Idle | None:
    """Null where a run does not tell, as with one rank. ``whole``: seconds of an iteration."""
    known = [{name: wait.mean_seconds for name, wait in (record.waits or {}).items()} for record in records]
    waits = {cost.name: cost.seconds for cost in _costs(records, known, whole)}
    seconds = sum(waits.values())
    return Idle(seconds, seconds / whole, max(waits, key=lambda name: waits[name])) if waits else None


def texts_of(record: Record, name: str) -> list[str]:
    texts = inner(record.environment.worker, name)
    return [text for text in texts if isinstance(text, str)] if isinstance(texts, list) else []


def lacking_phases_of(records: Sequence[Record]) -> dict[str, str]:
    """Phases that the runs' workers say they do not have, each with the first reason that is told."""
    found: dict[str, str] = {}
    for record in reversed(records):
        known = inner(record.environment.worker, "lacking_phases")
        found |= known if isinstance(known, dict) else {}
    return {name: why for name, why in found.items() if name in ALL_NAMES and type(why) is str}


def memory_of(records: Sequence[Record]) -> MemoryUse | None:
    """What a trainer's own processes hold together, or what the whole device uses, is held against no floor."""
    memories = [record.memory for record in records if record.memory is not None]
    meaning, peaks = peaks_of(memories, PEAKS)
    if not peaks:
        return None
    floor = memories[0].floor if meaning in OF_THE_RUN else None
    retries = [memory.allocation_retries for memory in memories if memory.allocation_retries is not None]
    beside = memories if meaning == "reserved" else []
    return MemoryUse(
        peak_bytes=max(peaks),
        run_peak_bytes=pooled_mean(peaks, [1.0] * len(peaks)),
        peak_is=meaning,
        allocated_bytes=max(peaks_of(beside, ["resident"])[1], default=None),
        device_bytes=max(peaks_of(beside, ["whole device"])[1], default=None),
        floor_bytes=floor.bytes if floor else None,
        floor_phase=floor.phase if floor else None,
        efficiency=floor.bytes / max(peaks) if floor else None,
        allocation_retries=sum(retries) if retries else None,
        by_phase=_memory_by_phase(memories),
    )


def peaks_of(memories: Sequence[Peaks | None], kinds: Iterable[str]) -> tuple[str, tuple[int, ...]]:
    """The first of these kinds that all runs know, and the peak of each of them; empty where there is none."""
    for kind in kinds:
        peaks = tuple(peak for memory in memories if memory and (peak := getattr(memory, PEAKS[kind])))
        if peaks and len(peaks) == len(memories):
            return kind, peaks
    return "", ()


def occupied_of(records: Sequence[Record]) -> int | None:
    """The most that the processes of any rank held, ranks that only generate among them: on a GPU what the whole device
    used, on a CPU what was resident. Null where a run does not know it."""
    found: list[int | None] = []
    for record in records:
        field = "peak_device_bytes" if record.run.device == "cuda" else "peak_resident_bytes"
        sides = record.overlap.sides.values() if record.overlap else ()
        found += [getattr(one, field) for one in (record.memory, *(side.memory for side in sides)) if one is not None]
    known = [peak for peak in found if peak is not None]
    return max(known) if known and len(known) == len(found) else None


def _memory_by_phase(memories: Sequence[Memory]) -> tuple[PhaseMemory, ...]:
    """Of every timed phase with a peak in all runs that has a floor, or that only some runs have."""
    floors = memories[0].floor.by_phase if memories[0].floor else {}
    found = []
    for name in (phase.name for phase in ALL if phase.optional or phase.name in floors):
        _, peaks = peaks_of([memory.by_phase.get(name) for memory in memories], ["resident"])
        if peaks:
            mean, greatest, floor = pooled_mean(peaks, [1.0] * len(peaks)), max(peaks), floors.get(name)
            found.append(PhaseMemory(name, greatest, mean, floor, None if floor is None else floor / greatest))
    return tuple(found)


def energy_of(records: Sequence[Record]) -> EnergyUse | None:
    measured = [record.energy for record in records if record.energy is not None]
    if not measured:
        return None
    joules = [energy.joules for energy in measured if energy.joules is not None]
    samples = sum(
        record.counts.samples * record.steady_state.iterations for record in records if record.energy and record.counts
    )
    whole = len(joules) == len(records) and samples > 0
    return EnergyUse(
        joules_per_sample=sum(joules) / samples if whole else None,
        valid=whole and all(energy.valid for energy in measured),
        reasons=tuple(sorted({reason for energy in measured for reason in energy.reasons})),
    )


@dataclass(frozen=True)
class Expected:
    """Samples per second, with the band that held four of five measured rates, and seconds of the phases."""

    rate: Interval
    phases: tuple[tuple[str, float], ...]


def expected_of(records: Sequence[Record]) -> Expected | None:
    """As stored, the same for all repeats."""
    for body in (record.predicted or {} for record in records):
        value, low, high = (positive(body.get(name)) for name in ("samples_per_second", "low", "high"))
        if value is None:
            continue
        bounded = low is not None and high is not None and low <= value <= high
        rate = Interval(value, low, high) if bounded else Interval(value, None, None)
        phases = body.get("phases")
        known = phases.items() if isinstance(phases, Mapping) else ()
        return Expected(rate, tuple((name, found) for name, seconds in known if (found := positive(seconds))))
    return None
