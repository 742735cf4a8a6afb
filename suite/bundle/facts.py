"""The facts of a rank's environment event, and by which rules its bundle is derived; and whether what ranks report of
their stack, machine, reward, noise, energy and memory fits the manifest and the driver.

What an older worker did not report is held against nobody.
"""

from collections.abc import Iterator
from typing import Any

from suite.backends.registry import find_backend
from suite.bundle.event_fields import Iteration, Launch, Memory, Turn
from suite.bundle.events import SETUP, Events
from suite.bundle.files import DamagedBundle
from suite.bundle.findings import Finding, one_of
from suite.bundle.manifest_file import once_per_manifest
from suite.bundle.record import Record
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest
from suite.spec.resolve import sample_lengths
from suite.spec.version import suite_version

#: The newest rules that this version knows; ``suite.worker.facts.DERIVATION`` is what its own ranks ask for.
NEWEST_DERIVATION = 4
#: Of a rank's own words, as much as a note shows.
_LINES, _LINE_CHARACTERS = 8, 200
_MOST_LISTED = 512
#: From here on ranks report the noise of every iteration.
_WITH_NOISE = 3
_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
#: A mean of one number is that number but for rounding, also in half precision.
_REWARD_SHARE, _REWARD_LEAST = 0.01, 0.001
#: What a counter in millijoules leaves of an energy; samples of the power, some a second, tell it within a factor.
_ENERGY_JOULES, _ENERGY_SHARE, _ENERGY_SECONDS, _POWER_FACTOR = 0.1, 0.001, 3.0, 2.0
#: Of the tokens of all samples; more samples than any run has take long to draw.
_LENGTHS_SHARE, _MOST_DRAWN = 0.1, 50_000
_SHOWN = 40
#: A process gives back little of what it had before there was a model.
_RESIDENT_SHARE = 0.8
#: What a device holds beside the allocator's memory hardly grows while a model is built.
_OUTSIDE_BYTES, _OUTSIDE_SHARE = 256 << 20, 0.1
#: The floor is the least that there can be; it knows no page that is shared or given back.
_FLOOR_RATIO = 1.25


def facts_of(events: Events, rank: int) -> dict[str, Any]:
    """The facts of a rank's environment event, empty where it wrote none."""
    return events.facts.get(rank, {})


def inner(value: Any, *names: str) -> Any:
    """A field of facts that others may have written; None where it is not there."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def listed_objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list of facts, as many as somebody reads."""
    return [one for one in value[:_MOST_LISTED] if isinstance(one, dict)] if isinstance(value, list) else []


def positive(value: Any) -> float | None:
    """A positive number that a measurement can have, else None."""
    return float(value) if type(value) in (int, float) and 0 < value < 1e18 else None


def derivation(events: Events) -> int:
    """By which rules a bundle is derived: those of the worker that wrote it, so that old records stay as they were; 1
    where it tells none. Raises DamagedBundle for rules that this version does not know."""
    value = facts_of(events, 0).get("derivation", 1)
    if type(value) is not int or not 1 <= value <= NEWEST_DERIVATION:
        known = f"this version knows 1 to {NEWEST_DERIVATION}, suite {suite_version()}: install a newer one"
        raise DamagedBundle(f"events/rank-0.jsonl: derivation is {ascii(value)[:40]}, {known}")
    return value


def disturbance_notes(events: Events) -> Iterator[str]:
    """Whose devices were not free before the run, as ranks saw it. Raises DamagedBundle for no list of texts."""
    for rank in events.ranks if derivation(events) >= 2 else ():
        found = inner(facts_of(events, rank), "idle", "disturbed_by")
        if found is not None and not (isinstance(found, list) and all(isinstance(line, str) for line in found)):
            raise DamagedBundle(f"events/rank-{rank}.jsonl: what disturbed the device is not a list of texts")
        if found:
            lines = "; ".join(line[:_LINE_CHARACTERS] for line in found[:_LINES])
            yield f"the device of rank {rank} was not free before the run: {lines}"


def fact_findings(events: Events, manifest: Manifest, record: Record) -> Iterator[Finding]:
    """One for each kind of contradiction."""
    launch, measure, driver = events.of_driver(Launch), manifest.measure, record.environment.driver
    beside = inner(driver, "host", "cpu", "model") if launch is not None and launch.launcher == "local" else None
    threads = _others(events, ("threads", "torch"), "the manifest", measure.threads_per_rank)
    dtype = _DTYPES[measure.precision]
    yield from one_of("stack", [*not_as_asked(events, manifest), *threads, *_kind(manifest)])
    yield from one_of("machine", _others(events, ("cpu", "model"), "its driver beside it", beside))
    yield from one_of("ceilings", _others(events, ("ceilings", "matmul_dtype"), "the run", dtype))
    yield from one_of("reward", _rewards(events, manifest))
    yield from one_of("noise", _without_noise(events, manifest))
    yield from one_of("voided", _voided(events, manifest))
    yield from one_of("energy", _energies(events))
    yield from one_of("lengths", _lengths(manifest))


def _others(events: Events, place: tuple[str, ...], whose: str, wanted: Any) -> Iterator[str]:
    """Ranks of which a fact is another than ``whose``, where both are known."""
    for rank in events.ranks if wanted is not None else ():
        found = inner(facts_of(events, rank), *place)
        if found not in (None, wanted):
            what = f"{' '.join(place)} of rank {rank} is {ascii(found)[:_SHOWN]}"
            yield f"{what}, that of {whose} {ascii(wanted)[:_SHOWN]}"


def not_as_asked(events: Events, manifest: Manifest) -> Iterator[str]:
    """Another device or other versions than the manifest has; a worker that finds another stack starts no run."""
    facts = [facts_of(events, rank) for rank in events.ranks]
    kinds = sorted({str(each["device"].get("type"))[:_SHOWN] for each in facts if isinstance(each.get("device"), dict)})
    if kinds not in ([], [manifest.measure.device]):
        yield f"the manifest asks for {manifest.measure.device}, ranks tell they ran on {' and '.join(kinds)}"
    packages = [each["packages"] for each in facts if isinstance(each.get("packages"), dict)]
    for package, version in manifest.stack.items():
        found = {str(each.get(package))[:_SHOWN] for each in packages}
        if found - {version}:
            yield f"the manifest asks for {package} {version}, ranks tell {' and '.join(sorted(found))}"


@once_per_manifest
def _kind(manifest: Manifest) -> tuple[str, ...]:
    """An engine is held to more than a trainer. Of a package that is not installed nothing is known."""
    name, kind = manifest.backend.name, manifest.backend.kind
    try:
        known = find_backend(name).kind
    except UsageError:
        return ()
    return () if kind == known else (f"the manifest calls {name} of kind {kind}, it is of kind {known}",)


def _rewards(events: Events, manifest: Manifest) -> Iterator[str]:
    """A constant reward has no other mean."""
    reward = manifest.workload.reward
    if reward.kind != "constant":
        return
    for event in events.of_all(Iteration):
        found = event.stats.get("reward")
        if found is not None and abs(found - reward.value) > max(_REWARD_SHARE * abs(reward.value), _REWARD_LEAST):
            where = f"in iteration {event.iteration} of rank {event.rank}"
            yield f"the mean reward was {found:.6g} {where}, the manifest has a constant one of {reward.value:.6g}"


def _without_noise(events: Events, manifest: Manifest) -> Iterator[str]:
    """Iterations whose noise somebody took away, or whom older rules would keep from being judged by it."""
    rules = derivation(events)
    is_cpu_engine = manifest.measure.device == "cpu" and manifest.backend.kind == "engine"
    if rules < _WITH_NOISE and manifest.stack_code and facts_of(events, 0):
        yield f"ranks ask for the rules of derivation {rules}, which are older than the version that made the manifest"
    for event in events.of_all(Iteration) if rules >= _WITH_NOISE else ():
        if event.noise is None:
            yield f"rank {event.rank} tells nothing of the noise around iteration {event.iteration}, as its worker does"
        elif is_cpu_engine and event.noise.get("cpu_seconds") == 0:
            yield f"rank {event.rank} computed iteration {event.iteration} in no time of a CPU"


def _voided(events: Events, manifest: Manifest) -> Iterator[str]:
    """Iterations that were made not to count: optimizers skip steps in fp16 alone, and who runs alone has no turns."""
    launch = events.of_driver(Launch)
    for event in events.of_all(Iteration) if manifest.measure.precision != "fp16" else ():
        if event.skipped_steps:
            yield f"rank {event.rank} skipped optimizer steps in iteration {event.iteration}, which fp16 alone does"
    for turn in events.of_all(Turn) if launch is not None and launch.turns is None else ():
        yield f"rank {turn.rank} had a turn from iteration {turn.iteration} on, its driver ran it alone"


def _energies(events: Events) -> Iterator[str]:
    """Of a window of the device, which tells its energy, the counter's readings around it, and samples of the power."""
    for event in events.of_all(Iteration):
        window = event.device or {}
        energy, power = (positive(window.get(name)) for name in ("energy_joules", "power_watts_mean"))
        begin, end = (positive(window.get(f"energy_counter_{name}_joules")) for name in ("begin", "end"))
        where = f"in iteration {event.iteration} of rank {event.rank}"
        if energy and begin and end and abs(end - begin - energy) > _ENERGY_JOULES + _ENERGY_SHARE * energy:
            yield f"{energy:.6g} J were used {where}, and {end - begin:.6g} by the counter's readings"
        drawn = power * event.seconds if power and event.seconds > _ENERGY_SECONDS else None
        if energy and drawn and not 1 / _POWER_FACTOR < energy / drawn < _POWER_FACTOR:
            yield f"{energy:.6g} J were used {where}, and {drawn:.6g} by its {power:.4g} W"


def memory_findings(events: Events, manifest: Manifest, record: Record) -> Iterator[Finding]:
    """Peaks that their own rank contradicts, and a run that needed less than there must be."""
    cuda = manifest.measure.device == "cuda"
    yield from one_of(
        "memory-peaks",
        (
            f"{text} in {event.phase} of rank {event.rank}"
            for rank in events.ranks
            for facts in (facts_of(events, rank),)
            for event in events.of(rank, Memory)
            for text in _wrong_peaks(event, facts, cuda)
        ),
    )
    memory = record.memory
    if memory is not None and memory.efficiency is not None and memory.efficiency > _FLOOR_RATIO:
        share = f"{1 / memory.efficiency:.3g} of the {memory.theoretical_minimum_bytes} bytes"
        yield Finding(name="memory-floor", text=f"the peak is {share} that the layout needs")


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
    if not cuda:
        return
    used, total = event.peak_device_bytes, inner(facts, "device", "memory_bytes")
    built = inner(facts, "communicators", "outside_allocator_bytes", "built")
    if type(total) is int and max(reserved or 0, used or 0) > total:
        yield f"{max(reserved or 0, used or 0)} bytes were used of a device of {total}"
    if event.phase == SETUP and type(built) is int and reserved is not None and used is not None:
        beside = used - reserved
        if beside - built > _OUTSIDE_BYTES + _OUTSIDE_SHARE * used:
            yield f"{beside} bytes lay beside the {reserved} reserved ones, {built} by the rank's facts,"


@once_per_manifest
def _lengths(manifest: Manifest) -> tuple[str, ...]:
    """Samples shorter or longer than the workload's distribution gives; older versions drew them otherwise, with
    nearly the same mean."""
    drawn, samples = manifest.work.lengths, manifest.work.global_rollouts
    asked = sample_lengths(manifest.workload, samples, manifest.measure.seed) if samples <= _MOST_DRAWN else None
    if drawn is None or asked is None:
        return ()
    both = (("prompt", drawn.prompt, asked.prompt), ("response", drawn.response, asked.response))
    return tuple(
        f"the {name}s of the manifest have {sum(found)} tokens, its distribution gives {sum(wanted)}"
        for name, found, wanted in both
        if abs(sum(found) - sum(wanted)) > _LENGTHS_SHARE * sum(wanted)
    )
