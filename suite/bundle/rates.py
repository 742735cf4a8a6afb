"""Throughput, phases and steady state of the counted iterations."""

import math
from collections.abc import Iterable

from suite.bundle.event_fields import Iteration
from suite.bundle.events import Events
from suite.bundle.facts import derivation
from suite.bundle.record import Counts, Estimate, Phase, Phases, SteadyState, Throughput, Wait
from suite.bundle.timeline import Timeline
from suite.spec.phases import ALL, REMAINDER, PhaseSpec
from suite.stats import intervals
from suite.stats.steady_state import TEST, TEST_OF_ORDER, steady_state

CONVENTION = (
    "prompt and response tokens; total work over total time of the counted iterations, slowest rank; "
    "95 % interval within this run"
)


def throughput(events: Events, timeline: Timeline, ranks: int) -> Throughput | None:
    """Rates of the counted iterations; null where there is none, or no one number for its work."""
    counts = timeline.counts
    if counts is None or not timeline.counted:
        return None
    samples = intervals.rate_interval(
        intervals.RunSeconds(counts.samples, timeline.counted_seconds), _half_width(events)
    )
    tokens = samples.scaled((counts.prompt_tokens + counts.response_tokens) / counts.samples)
    return Throughput(
        samples_per_second=_estimate(samples),
        tokens_per_second=_estimate(tokens),
        tokens_per_second_per_device=_estimate(tokens.scaled(1 / ranks)),
        convention=CONVENTION,
    )


def phases(timeline: Timeline) -> Phases | None:
    """Each phase of the counted iterations: sums over iterations, divided once at the end. Raises DamagedBundle."""
    if not timeline.counted:
        return None
    total = math.fsum(timeline.counted_seconds)
    sums = {name: math.fsum(seconds) for name, seconds in _counted_seconds(timeline).items()}
    iterations = len(timeline.counted)
    tokens = {each.name: _tokens(each, timeline.counts) for each in ALL if each.name not in timeline.exposed}
    found = {each.name: _phase(sums.get(each.name), total, iterations, tokens.get(each.name)) for each in ALL}
    if timeline.asynchronous:
        found = {name: phase and phase.model_copy(update={"share": None}) for name, phase in found.items()}
    return Phases(**found)


def phase_intervals(events: Events, timeline: Timeline) -> dict[str, Estimate] | None:
    """Seconds of each phase with the interval that the counted iterations give; null where ``phases`` is."""
    if derivation(events) < 2 or not timeline.counted:
        return None
    half_width = _half_width(events)
    return {
        name: _estimate(intervals.mean_interval(values, half_width))
        for name, values in _counted_seconds(timeline).items()
    }


def _counted_seconds(timeline: Timeline) -> dict[str, list[float]]:
    """Of each phase in every counted iteration, and of what is beyond them. Raises DamagedBundle."""
    known = {name: [values[index] for index in timeline.counted] for name, values in timeline.phase_seconds.items()}
    return {**known, REMAINDER.name: [timeline.other_seconds(index) for index in timeline.counted]}


def waits(events: Events, timeline: Timeline) -> dict[str, Wait] | None:
    """How long ranks waited at the end of each phase for the slowest; null for one rank, which waits for nobody."""
    ranks = len(events.ranks)
    if derivation(events) < 2 or not timeline.counted or ranks < 2:
        return None
    counted = len(timeline.counted)
    waited = events.times.wait[:, timeline.counted]
    of_phase = {phase: waited[:, :, place] for place, phase in enumerate(events.times.phases)}
    return {
        phase: Wait(
            longest_seconds=math.fsum(of_phase[phase].max(axis=0).tolist()) / counted,
            mean_seconds=math.fsum(of_phase[phase].ravel().tolist()) / (counted * ranks),
        )
        for phase in timeline.phase_seconds
    }


def details(events: Events, counted: Iterable[int]) -> dict[str, float] | None:
    """Parts of the iterations: of each part the slowest rank, then the mean. Null where no rank tells any."""
    counted = frozenset(counted)
    longest: dict[str, dict[int, float]] = {}
    for event in events.of_all(Iteration):
        if event.details and event.iteration in counted:
            for name, seconds in event.details.items():
                by_iteration = longest.setdefault(name, {})
                by_iteration[event.iteration] = max(by_iteration.get(event.iteration, 0.0), seconds)
    return {name: math.fsum(found.values()) / len(counted) for name, found in sorted(longest.items())} or None


def steadiness(events: Events, timeline: Timeline, warmup: int) -> SteadyState:
    """The verdict on the counted iterations; the declared warm-up is kept whatever it says."""
    test = TEST if derivation(events) >= 3 else TEST_OF_ORDER
    result = steady_state(timeline.counted_seconds, test)
    return SteadyState(
        verdict=result.verdict, warmup=warmup, iterations=len(timeline.counted), reasons=result.reasons, test=test
    )


def _half_width(events: Events) -> intervals.HalfWidth:
    return intervals.by_slow_waves if derivation(events) >= 3 else intervals.by_lag_one


def _estimate(interval: intervals.Interval) -> Estimate:
    return Estimate(value=interval.value, low=interval.low, high=interval.high)


def _tokens(phase: PhaseSpec, counts: Counts | None) -> int | None:
    if counts is None or not phase.tokens:
        return None
    known = [getattr(counts, name) for name in phase.tokens]
    return None if None in known else sum(known)


def _phase(seconds: float | None, total: float, iterations: int, tokens: int | None) -> Phase | None:
    if seconds is None:
        return None
    measurable = tokens is not None and seconds > 1e-9 * total
    return Phase(
        seconds=seconds / iterations,
        share=seconds / total,
        tokens_per_second=tokens * iterations / seconds if tokens is not None and measurable else None,
    )
