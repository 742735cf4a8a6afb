"""What the counted iterations give: throughput, phases, waits and steady state, how long the samples were, what uneven
lengths cost, and how generation agreed with the policy that trains."""

import math
from collections.abc import Mapping, Sequence

from suite.bundle import record
from suite.bundle.event_fields import Iteration
from suite.bundle.files import DamagedBundle
from suite.bundle.sides import GENERATE, greatest_staleness
from suite.bundle.timeline import Timeline
from suite.spec.lengths import Lengths
from suite.spec.manifest import Manifest
from suite.spec.phases import ALL, REMAINDER
from suite.stats import intervals
from suite.stats.steady_state import TEST, TEST_OF_ORDER, steady_state

CONVENTION = (
    "prompt and response tokens; total work over total time of the counted iterations, slowest rank; "
    "95 % interval within this run"
)


def throughput(timeline: Timeline) -> record.Throughput | None:
    """Rates of the counted iterations; null where there is none, or no one number for its work."""
    counts = timeline.counts
    if counts is None or not timeline.counted:
        return None
    seconds = intervals.RunSeconds(counts.samples, timeline.counted_seconds)
    samples = intervals.rate_interval(seconds, _half_width(timeline))
    tokens = samples.scaled((counts.prompt_tokens + counts.response_tokens) / counts.samples)
    return record.Throughput(
        samples_per_second=_estimate(samples),
        tokens_per_second=_estimate(tokens),
        tokens_per_second_per_device=_estimate(tokens.scaled(1 / timeline.manifest.layout.ranks)),
        convention=CONVENTION,
    )


def phases(timeline: Timeline) -> record.Phases | None:
    """Each phase of the counted iterations: sums over iterations, divided once at the end. Raises DamagedBundle."""
    if not timeline.counted:
        return None
    counts, layout = timeline.counts, timeline.manifest.layout
    # Others generate while these ranks train: a trainer's iterations follow each other unless it is asynchronous.
    is_ahead = layout.placement == "split" and (timeline.manifest.backend.kind == "engine" or layout.asynchronous)
    exposed = GENERATE if is_ahead else None
    total, iterations = math.fsum(timeline.counted_seconds), len(timeline.counted)
    found: dict[str, record.Phase | None] = dict.fromkeys(each.name for each in ALL)
    seconds_of = _counted_seconds(timeline)
    for each in ALL:
        if each.name in seconds_of:
            seconds = math.fsum(seconds_of[each.name])
            counted = [] if counts is None or each.name == exposed else [getattr(counts, name) for name in each.tokens]
            tokens = None if not counted or None in counted else sum(counted)
            found[each.name] = record.Phase(
                seconds=seconds / iterations,
                share=None if layout.asynchronous else seconds / total,
                tokens_per_second=None if tokens is None or seconds <= 1e-9 * total else tokens * iterations / seconds,
            )
    return record.Phases(**found)


def phase_intervals(timeline: Timeline) -> dict[str, record.Estimate] | None:
    """Seconds of each phase with the interval that the counted iterations give; null where ``phases`` is."""
    if timeline.rules < 2 or not timeline.counted:
        return None
    half_width, seconds = _half_width(timeline), _counted_seconds(timeline)
    return {name: _estimate(intervals.mean_interval(values, half_width)) for name, values in seconds.items()}


def _counted_seconds(timeline: Timeline) -> dict[str, list[float]]:
    """Of each phase in every counted iteration, and of what is beyond them. Raises DamagedBundle."""
    known = {name: [values[index] for index in timeline.counted] for name, values in timeline.phase_seconds.items()}
    return {**known, REMAINDER.name: [timeline.other_seconds(index) for index in timeline.counted]}


def waits(timeline: Timeline) -> dict[str, record.Wait] | None:
    """How long ranks waited at the end of each phase for the slowest; null for one rank, which waits for nobody."""
    times, counted = timeline.training.times, len(timeline.counted)
    ranks = len(times.ranks)
    if timeline.rules < 2 or not counted or ranks < 2:
        return None
    of_phase = dict(zip(times.phases, times.wait[:, timeline.counted].transpose(2, 0, 1), strict=True))
    return {
        phase: record.Wait(
            longest_seconds=math.fsum(of_phase[phase].max(axis=0).tolist()) / counted,
            mean_seconds=math.fsum(of_phase[phase].ravel().tolist()) / (counted * ranks),
        )
        for phase in timeline.phase_seconds
    }


def details(timeline: Timeline) -> dict[str, float] | None:
    """Parts of the iterations: of each part the slowest rank, then the mean. Null where no rank tells any."""
    longest: dict[str, dict[int, float]] = {}
    for event in timeline.counted_events(timeline.training):
        for name, seconds in (event.details or {}).items():
            by_iteration = longest.setdefault(name, {})
            by_iteration[event.iteration] = max(by_iteration.get(event.iteration, 0.0), seconds)
    return {name: math.fsum(found.values()) / len(timeline.counted) for name, found in sorted(longest.items())} or None


def steadiness(timeline: Timeline) -> record.SteadyState:
    """The verdict on the counted iterations; the declared warm-up is kept whatever it says."""
    test = TEST if timeline.rules >= 3 else TEST_OF_ORDER
    result, warmup = steady_state(timeline.counted_seconds, test), timeline.manifest.measure.warmup
    return record.SteadyState(
        verdict=result.verdict, warmup=warmup, iterations=len(timeline.counted), reasons=result.reasons, test=test
    )


def _half_width(timeline: Timeline) -> intervals.HalfWidth:
    return intervals.by_slow_waves if timeline.rules >= 3 else intervals.by_lag_one


def _estimate(interval: intervals.Interval) -> record.Estimate:
    return record.Estimate(value=interval.value, low=interval.low, high=interval.high)


def realised_lengths(manifest: Manifest) -> record.RealisedLengths | None:
    """Of the samples of every iteration, as the manifest lists them; null where all are of one length."""
    drawn = manifest.work.lengths
    if drawn is None:
        return None
    workload = manifest.workload
    return record.RealisedLengths(
        prompt=_summary(drawn.prompt, workload.prompt_lengths), response=_summary(drawn.response, workload.lengths)
    )


def padding(manifest: Manifest, counts: record.Counts | None) -> record.Padding | None:
    """What went through training as padding; null where samples are even, and where no iteration was completed."""
    if manifest.work.lengths is None or counts is None:
        return None
    if counts.padded_tokens is None or counts.trained_tokens is None:
        return None
    positions = counts.padded_tokens + counts.trained_tokens
    return record.Padding(
        padded_tokens=counts.padded_tokens,
        share=counts.padded_tokens / positions if positions else 0.0,
        packed=manifest.layout.packing,
    )


def rollout(timeline: Timeline) -> record.Rollout | None:
    """Figures of generation over the counted iterations; null where samples are even and no rank tells any."""
    told = [event.rollout for event in timeline.counted_events() if event.rollout]
    share = _idle_slot_share(timeline.manifest)
    if timeline.rules < 2 or (not told and share is None):
        return None
    size, largest = _mean(told, "effective_sample_size"), _known(told, "logprob_difference_max")
    return record.Rollout(
        idle_slot_share=share,
        idle_slot_seconds=_mean(told, "idle_slot_seconds"),
        logprob_difference_mean=_mean(told, "logprob_difference_mean"),
        logprob_difference_max=max(largest, default=None),
        effective_sample_size=None if size is None else min(1.0, size),
    )


def staleness(timeline: Timeline) -> int | None:
    """Updates of the weights between those that generated the samples and those that train on them: the most of the
    counted iterations; of an asynchronous run in publications. Raises DamagedBundle where ranks tell different ones."""
    if timeline.rules < 2:
        return None
    if timeline.manifest.layout.asynchronous:
        return greatest_staleness(timeline)
    first: dict[int, Iteration] = {}
    for event in timeline.events.of_all(Iteration):
        before = event if event.staleness is None else first.setdefault(event.iteration, event)
        if before.staleness != event.staleness:
            where = f"on rank {event.rank} in iteration {event.iteration}"
            raise DamagedBundle(f"staleness is {event.staleness} {where}, but {before.staleness} on rank {before.rank}")
    return max((first[index].staleness or 0 for index in timeline.counted if index in first), default=None)


def _summary(lengths: Sequence[int], asked: Lengths | None) -> record.LengthSummary:
    """Percentiles are lengths that occur: the least that so many of the samples do not exceed."""
    if not lengths or min(lengths) < 1:
        raise DamagedBundle("manifest.json: work.lengths holds a length below one token, or none at all")
    ordered = sorted(lengths)
    cap = None if asked is None else asked.cap
    return record.LengthSummary(
        mean=math.fsum(ordered) / len(ordered),
        p50=_percentile(ordered, 50),
        p90=_percentile(ordered, 90),
        p99=_percentile(ordered, 99),
        max=ordered[-1],
        at_cap=None if cap is None else sum(length >= cap for length in ordered) / len(ordered),
    )


def _percentile(ordered: Sequence[int], percent: int) -> int:
    return ordered[-(-len(ordered) * percent // 100) - 1]


def _idle_slot_share(manifest: Manifest) -> float | None:
    """Of the token steps until the longest sample of a replica ends, or of a rank that only generates, those after the
    others' own end: each holds all of its samples at once."""
    if manifest.work.lengths is None:
        return None
    responses = manifest.work.lengths.response
    rows = max(1, len(responses) // (manifest.layout.generation_ranks or manifest.layout.data))
    batches = [responses[first : first + rows] for first in range(0, len(responses), rows)]
    return 1.0 - sum(responses) / sum(len(batch) * max(batch) for batch in batches)


def _known(told: Sequence[Mapping[str, float | None]], name: str) -> list[float]:
    return [value for each in told if (value := each.get(name)) is not None]


def _mean(told: Sequence[Mapping[str, float | None]], name: str) -> float | None:
    """Over iterations and the ranks that tell it, whose samples are as many."""
    values = _known(told, name)
    return math.fsum(values) / len(values) if values else None
