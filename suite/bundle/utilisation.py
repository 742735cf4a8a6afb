"""What the run took of its devices: peak memory over ranks and phases against the floor, shares of the peak arithmetic
and bandwidth, and what no device of the kind can do."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from suite.bundle.event_fields import Memory as Report
from suite.bundle.events import SETUP, Events
from suite.bundle.facts import facts_of, inner, listed_objects, positive
from suite.bundle.files import DamagedBundle
from suite.bundle.manifest_file import once_per_manifest
from suite.bundle.parts import Overlap, Peaks
from suite.bundle.record import Compute, Floor, Memory, Phases
from suite.bundle.timeline import Timeline
from suite.spec.catalogue import find_device
from suite.spec.device import Device
from suite.spec.manifest import Manifest
from suite.theory.bandwidth import ENGINE_SAMPLES, decode_bytes
from suite.theory.flops import Attention, IterationFlops, iteration_flops
from suite.theory.memory import Rules, memory_floor
from suite.theory.parameters import parameter_count
from suite.theory.shards import WEIGHT_BYTES

_NAMES = Peaks.__struct_fields__
_values = attrgetter(*_NAMES)
#: One for each of these names, -1 for null.
_Values = tuple[int, ...]
_NOTHING: _Values = (-1,) * len(_NAMES)
#: Larger than the last cache of any device in the catalogue, which therefore reads weights anew in every step.
_BEYOND_CACHE_BYTES = 1 << 30
#: What a rank of an engine holds in every phase.
_STATES = ("weights", "reference", "optimizer")


def memory(timeline: Timeline) -> Memory:
    """Peaks of the counted iterations, and the floor, which needs no run. Raises DamagedBundle.

    Of a split run they are those of the training side, as is the floor. A rank's peak is the largest that it knows;
    over ranks it is null where a rank knows none.
    """
    manifest, events, counted = timeline.manifest, timeline.training, frozenset(timeline.counted)
    world = range(manifest.layout.training_ranks)
    per_rank, by_phase = _largest(events, world, counted)
    peaks = _over_ranks(per_rank, max)
    floor = _floor(manifest, 1 if timeline.rules == 1 else 2)
    allocated = peaks.peak_allocated_bytes
    reserved = allocated if manifest.measure.device == "cpu" else peaks.peak_reserved_bytes
    return Memory(
        **msgspec.structs.asdict(peaks),
        resident_baseline_bytes=_baseline(events, world),
        theoretical_minimum_bytes=floor.bytes,
        efficiency=floor.bytes / reserved if reserved else None,
        efficiency_allocated=floor.bytes / allocated if allocated else None,
        by_phase={phase: _over_ranks(of_phase, max) for phase, of_phase in by_phase.items()},
        min_over_ranks=_over_ranks(per_rank, min),
        allocation_retries=_retries(events, counted, world),
        floor=floor,
    )


def side_peaks(events: Events, counted: Sequence[int]) -> Peaks:
    """The peaks of these ranks alone in the counted iterations."""
    return _over_ranks(_largest(events, tuple(events.ranks), frozenset(counted))[0], max)


@once_per_manifest
def _floor(manifest: Manifest, rules: Rules) -> Floor:
    work, precision = manifest.work, manifest.measure.precision
    floor = memory_floor(manifest.size, manifest.workload, work, manifest.layout, precision, rules)
    return Floor(bytes=floor.bytes, phase=floor.phase, parts=floor.parts, by_phase=floor.by_phase)


def _largest(
    events: Events, ranks: Sequence[int], counted: frozenset[int]
) -> tuple[list[_Values], dict[str, list[_Values]]]:
    """The largest that each rank knows, of the counted iterations and by phase, where the set-up is in too."""
    whole, by_phase = [_NOTHING] * len(ranks), dict[str, list[_Values]]()
    for place, rank in enumerate(ranks):
        told: dict[str, list[_Values]] = defaultdict(list)
        for report in events.of(rank, Report):
            if report.phase == SETUP or report.iteration in counted:
                told[report.phase].append(tuple(-1 if value is None else value for value in _values(report)))
        for phase, values in told.items():
            of_phase = by_phase.setdefault(phase, [_NOTHING] * len(ranks))
            of_phase[place] = tuple(map(max, *values, _NOTHING))
            if phase != SETUP:
                whole[place] = tuple(map(max, whole[place], of_phase[place]))
    return whole, by_phase


def _over_ranks(per_rank: Sequence[_Values], choose: Callable[[Any], int]) -> Peaks:
    """Each null where a rank does not know it."""
    columns = zip(_NAMES, zip(*per_rank, strict=True), strict=True)
    return Peaks(**{name: None if -1 in values else choose(values) for name, values in columns})


def _retries(events: Events, counted: frozenset[int], world: Sequence[int]) -> int | None:
    """Growth of each rank's counter over the counted iterations, summed over ranks; null where one does not count."""
    total, first = 0, min(counted, default=0)
    for rank in world:
        told: list[tuple[Any, Any]] = [(one.iteration, one.allocation_retries) for one in events.of(rank, Report)]
        during = [count for iteration, count in told if iteration in counted]
        if not during or any(count is None for _, count in told):
            return None
        before = [count for iteration, count in told if iteration is None or iteration < first]
        total += max(0, during[-1] - (before[-1] if before else 0))
    return total


def _baseline(events: Events, world: Sequence[int]) -> int | None:
    """Resident bytes before the model was built: the largest of all ranks, null where one does not say."""
    found: list[Any] = [facts_of(events, rank).get("resident_baseline_bytes") for rank in world]
    for rank, value in enumerate(found):
        if value is not None and (type(value) is not int or value < 0):
            raise DamagedBundle(f"events/rank-{rank}.jsonl: resident_baseline_bytes is {ascii(value)[:40]}, not bytes")
    return None if None in found else max(found)


def compute(
    timeline: Timeline, phases: Phases | None, beside: Overlap | None
) -> tuple[Compute | None, tuple[str, ...]]:
    """Compute and notes; null before any iteration was completed with one number for its work.

    MFU is model FLOPs over (seconds x peak x ranks), HFU the same with recomputed work (PaLM, arXiv 2204.02311,
    appendix B). Both count full attention; ``hfu_causal`` counts the pairs that a causal mask leaves, which is what a
    fused causal kernel executes. MBU is what decoding reads over (seconds of generation x peak bandwidth), prefill time
    included, so it is a lower bound. All are null on a CPU and where a device's peak is unknown.
    """
    counts, manifest = timeline.counts, timeline.manifest
    lengths = manifest.work.lengths
    if counts is None:
        return None, ()
    if lengths is not None and counts.samples != len(lengths.prompt):
        return None, (f"{counts.samples} samples in an iteration, but lengths of {len(lengths.prompt)}: no FLOPs",)
    done = _done(timeline)
    work = _flops(manifest, counts.samples, "full", *done)
    causal = float(_flops(manifest, counts.samples, "causal", *done).hardware) if timeline.rules >= 2 else None
    device, notes = _device_of(timeline)
    peak = None if device is None else _peak(device, timeline)
    available = None
    if peak is not None and timeline.counted:
        available = sum(timeline.counted_seconds) / len(timeline.counted) * peak * manifest.layout.ranks
    return Compute(
        model_flops=float(work.model),
        hardware_flops=float(work.hardware),
        mfu=None if available is None else work.model / available,
        hfu=None if available is None else work.hardware / available,
        mbu=_bandwidth(device, phases, beside, manifest, done[1] is not None),
        peak_flops=peak,
        convention=work.convention,
        hardware_flops_causal=causal,
        hfu_causal=None if causal is None or available is None else causal / available,
    ), notes


def _done(timeline: Timeline) -> tuple[bool, int | None]:
    """Whether the policy makes no pass in score, and how many samples compute a prompt once: those that the suite's own
    vLLM generates together; null for other engines, and for trainers, each of which sets its vLLM up by itself."""
    layout, work, sharing = timeline.manifest.layout, timeline.manifest.work, None
    is_own = timeline.manifest.backend.kind == "engine" and layout.generation == "vllm"
    if timeline.rules >= 4 and is_own:
        ranks = layout.generation_ranks
        sharing = work.global_rollouts // ranks if ranks else work.replica_rollouts
    return facts_of(timeline.events, 0).get("unscored") is True, sharing


def _peak(device: Device, timeline: Timeline) -> float | None:
    """Of fp32 whose products may be tf32, that of tf32 where it is known; bundles before derivation 4 keep fp32's."""
    events, precision = timeline.events, timeline.manifest.measure.precision
    allowed = timeline.rules >= 4 and any(facts_of(events, rank).get("allow_tf32") is True for rank in events.ranks)
    products = "tf32" if precision == "fp32" and allowed else precision
    return device.peak_flops.get(products, device.peak_flops.get(precision))


@once_per_manifest
def _flops(
    manifest: Manifest, samples: int, attention: Attention, unscored: bool, sharing: int | None
) -> IterationFlops:
    recompute = manifest.layout.recompute == "full"
    size, workload = manifest.size, manifest.workload
    return iteration_flops(size, workload, samples, recompute, attention, manifest.work.lengths, unscored, sharing)


def _bandwidth(
    device: Device | None, phases: Phases | None, beside: Overlap | None, manifest: Manifest, refills: bool
) -> float | None:
    """Of the devices that decode: under split placement those of the generation side, for as long as it generates.
    ``refills``: where the suite's own vLLM does, which takes up so many samples at once."""
    if device is None or phases is None or phases.generate is None:
        return None
    seconds = phases.generate.seconds
    if manifest.layout.placement == "split":
        seconds = 0.0 if beside is None else beside.generation_busy_seconds
    if seconds == 0:
        return None
    return _bytes_read(manifest, ENGINE_SAMPLES if refills else None) / (seconds * device.memory_bytes_per_second)


@once_per_manifest
def _bytes_read(manifest: Manifest, at_once: int | None) -> int:
    work = manifest.work
    if manifest.layout.placement == "split":
        work = work.model_copy(update={"replica_rollouts": work.global_rollouts // manifest.layout.generation_ranks})
    return decode_bytes(manifest.size, manifest.workload, work, manifest.layout, manifest.measure.precision, at_once)


def _device_of(timeline: Timeline) -> tuple[Device | None, tuple[str, ...]]:
    """The one kind of device that all ranks report, when the catalogue knows it."""
    manifest = timeline.manifest
    if manifest.measure.device == "cpu":
        return None, ()
    names: set[str | None] = set()
    for rank in range(manifest.layout.ranks):
        name = inner(facts_of(timeline.events, rank), "device", "name")
        if not isinstance(name, str | None):
            raise DamagedBundle(f"events/rank-{rank}.jsonl: device.name is {ascii(name)[:40]}, not text")
        names.add(name)
    if len(names) > 1:
        listed = ", ".join(sorted(str(name) for name in names))
        return None, (f"ranks report different devices ({listed}), so there is no one peak",)
    (name,) = names
    device = None if name is None else find_device(name)
    return device, () if device else (f"device {name!r} is not in the catalogue, so its peak is unknown",)


def impossible_figures(
    timeline: Timeline, work: Compute | None, phases: Phases | None, memory: Memory
) -> Iterator[str]:
    """Messages that no link carries, a peak below what the layout holds, and phases that took less than their products
    at the device's peak, with causal attention, which is computed at least. Of trainers, which may leave out or move
    what the suite's engines do and hold, only messages are judged; of split runs, whose phases are waits, no phase."""
    manifest, (device, _) = timeline.manifest, _device_of(timeline)
    if device is None:
        return
    yield from _messages(facts_of(timeline.events, 0).get("network"), device)
    if manifest.backend.kind != "engine":
        return
    peak = memory.peak_device_bytes if memory.peak_reserved_bytes is None else memory.peak_reserved_bytes
    held = 0 if memory.floor is None else sum(memory.floor.parts.get(part, 0) for part in _STATES)
    if peak is not None and peak < held:
        yield f"the peak is {peak / 1e9:.3g} GB, {' and '.join(_STATES)} of the layout take {held / 1e9:.3g}"
    if manifest.layout.placement != "colocated" or work is None or phases is None or work.peak_flops is None:
        return
    least_work = _flops(manifest, manifest.work.global_rollouts, "causal", *_done(timeline))
    for name in ("generate", "score", "reference", "train"):
        phase, flops = getattr(phases, name), getattr(least_work, name)
        least = (flops + least_work.recompute if name == "train" else flops) / (work.peak_flops * manifest.layout.ranks)
        if phase is not None and 0 < phase.seconds < least:
            yield f"{name} took {phase.seconds:.3g} s, its products take {least:.3g} s at the peak of the device"
    weights = parameter_count(manifest.size).total * WEIGHT_BYTES[manifest.measure.precision] / manifest.layout.tensor
    is_read = manifest.size.experts is None and manifest.layout.generation == "hf" and weights > _BEYOND_CACHE_BYTES
    if is_read and work.mbu is not None and work.mbu > 1:
        yield f"decoding read {work.mbu:.3g} times what the device's memory gives in its time"


def _messages(network: Any, device: Device) -> Iterator[str]:
    """In a node a device sends with half of its link, and a switch that adds up saves at most the other half."""
    link = device.link_bytes_per_second or math.inf
    for one in listed_objects(inner(network, "measurements")):
        most = link if one.get("pattern") == "all_reduce" else link / 2
        rates = [positive(size.get("bus_bytes_per_second")) or 0.0 for size in listed_objects(one.get("sizes"))]
        if one.get("scope") == "within_node" and max(rates, default=0.0) > most:
            yield (
                f"{max(rates) / 1e9:.3g} GB/s is the bus bandwidth of {ascii(one.get('pattern'))[:40]} within a node, "
                f"whose links carry {most / 1e9:.3g} at most"
            )
