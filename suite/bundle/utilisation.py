"""How much of the devices' peak arithmetic and bandwidth the work used, and what no device of the kind can do."""

import math
from collections.abc import Iterator
from typing import Any

from suite.bundle.events import Events
from suite.bundle.facts import derivation, facts_of, inner, listed_objects, positive
from suite.bundle.files import DamagedBundle
from suite.bundle.overlap_model import Overlap
from suite.bundle.per_manifest import once_per_manifest
from suite.bundle.record import Compute, Memory, Phases
from suite.bundle.sides import overlap
from suite.bundle.timeline import Timeline
from suite.spec.catalogue import find_device
from suite.spec.device import Device
from suite.spec.manifest import Manifest
from suite.theory.bandwidth import ENGINE_SAMPLES, decode_bytes
from suite.theory.flops import Attention, IterationFlops, iteration_flops
from suite.theory.parameters import parameter_count
from suite.theory.shards import WEIGHT_BYTES

#: Larger than the last cache of any device in the catalogue, which therefore reads weights anew in every step.
_BEYOND_CACHE_BYTES = 1 << 30
#: What a rank of an engine holds in every phase.
_STATES = ("weights", "reference", "optimizer")


def compute(
    events: Events, timeline: Timeline, phases: Phases | None, manifest: Manifest
) -> tuple[Compute | None, tuple[str, ...]]:
    """Compute and notes; null before any iteration was completed with one number for its work.

    MFU is model FLOPs over (seconds x peak x ranks), HFU the same with recomputed work (PaLM, arXiv 2204.02311,
    appendix B). Both count full attention; ``hfu_causal`` counts the pairs that a causal mask leaves, which is what a
    fused causal kernel executes. MBU is what decoding reads over (seconds of generation x peak bandwidth), prefill time
    included, so it is a lower bound. All are null on a CPU and where a device's peak is unknown.
    """
    counts, lengths = timeline.counts, manifest.work.lengths
    if counts is None:
        return None, ()
    if lengths is not None and counts.samples != len(lengths.prompt):
        return None, (f"{counts.samples} samples in an iteration, but lengths of {len(lengths.prompt)}: no FLOPs",)
    done = _done(events, manifest)
    work = _flops(manifest, counts.samples, "full", *done)
    causal = float(_flops(manifest, counts.samples, "causal", *done).hardware) if derivation(events) >= 2 else None
    device, notes = _device_of(events, manifest)
    peak = None if device is None else _peak(device, events, manifest.measure.precision)
    available = None
    if peak is not None and timeline.counted:
        available = sum(timeline.counted_seconds) / len(timeline.counted) * peak * manifest.layout.ranks
    return Compute(
        model_flops=float(work.model),
        hardware_flops=float(work.hardware),
        mfu=None if available is None else work.model / available,
        hfu=None if available is None else work.hardware / available,
        mbu=_bandwidth(device, phases, overlap(events, timeline, manifest), manifest, done[1] is not None),
        peak_flops=peak,
        convention=work.convention,
        hardware_flops_causal=causal,
        hfu_causal=None if causal is None or available is None else causal / available,
    ), notes


def _done(events: Events, manifest: Manifest) -> tuple[bool, int | None]:
    """Whether the policy makes no pass in score, and how many samples compute a prompt once."""
    return facts_of(events, 0).get("unscored") is True, _sharing(manifest) if derivation(events) >= 4 else None


def _peak(device: Device, events: Events, precision: str) -> float | None:
    """Of fp32 whose products may be tf32, that of tf32 where it is known; bundles before derivation 4 keep fp32's."""
    allowed = derivation(events) >= 4 and any(facts_of(events, rank).get("allow_tf32") is True for rank in events.ranks)
    products = "tf32" if precision == "fp32" and allowed else precision
    return device.peak_flops.get(products, device.peak_flops.get(precision))


def _sharing(manifest: Manifest) -> int | None:
    """Samples that the suite's own vLLM generates together, which compute each prompt once; null for other engines, and
    for trainers, each of which sets its vLLM up by itself."""
    layout, work = manifest.layout, manifest.work
    if manifest.backend.kind != "engine" or layout.generation != "vllm":
        return None
    return work.global_rollouts // layout.generation_ranks if layout.generation_ranks else work.replica_rollouts


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
        if beside is None:
            return None
        seconds = beside.generation_busy_seconds
    if seconds == 0:
        return None
    return _bytes_read(manifest, ENGINE_SAMPLES if refills else None) / (seconds * device.memory_bytes_per_second)


@once_per_manifest
def _bytes_read(manifest: Manifest, at_once: int | None) -> int:
    work = manifest.work
    if manifest.layout.placement == "split":
        work = work.model_copy(update={"replica_rollouts": work.global_rollouts // manifest.layout.generation_ranks})
    return decode_bytes(manifest.size, manifest.workload, work, manifest.layout, manifest.measure.precision, at_once)


def _device_of(events: Events, manifest: Manifest) -> tuple[Device | None, tuple[str, ...]]:
    """The one kind of device that all ranks report, when the catalogue knows it."""
    if manifest.measure.device == "cpu":
        return None, ()
    names: set[str | None] = set()
    for rank in range(manifest.layout.ranks):
        name = inner(facts_of(events, rank), "device", "name")
        if name is not None and not isinstance(name, str):
            raise DamagedBundle(f"events/rank-{rank}.jsonl: device.name is {ascii(name)[:40]}, not text")
        names.add(name)
    if len(names) > 1:
        listed = ", ".join(sorted(str(name) for name in names))
        return None, (f"ranks report different devices ({listed}), so there is no one peak",)
    (name,) = names
    device = None if name is None else find_device(name)
    notes = () if device else (f"device {name!r} is not in the catalogue, so its peak is unknown",)
    return device, notes


def impossible_figures(
    events: Events, work: Compute | None, phases: Phases | None, memory: Memory, manifest: Manifest
) -> Iterator[str]:
    """One line for each. Of trainers, which may leave out or move what the suite's engines do and hold, only messages
    are judged; of split runs, whose phases are waits, no phase."""
    device, _ = _device_of(events, manifest)
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
    least_work = _flops(manifest, manifest.work.global_rollouts, "causal", *_done(events, manifest))
    peak = (work.peak_flops or math.inf) * manifest.layout.ranks
    for name in ("generate", "score", "reference", "train"):
        phase, flops = getattr(phases, name), getattr(least_work, name)
        least = (flops + least_work.recompute if name == "train" else flops) / peak
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
