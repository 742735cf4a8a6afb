"""The two sides of a split run: the training side's events make the iterations, the generation side's are beside."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from suite.bundle.asynchronous import asynchronous_overlap
from suite.bundle.event_fields import Iteration, Phase
from suite.bundle.events import Events
from suite.bundle.overlap_model import Overlap, OverlapSide
from suite.bundle.peaks import side_peaks
from suite.bundle.timeline import Timeline
from suite.spec.manifest import Manifest

GENERATE = "generate"
#: What the generation side does; a trainer's clock tells all phases on all of its ranks.
_GENERATION_PHASES = frozenset(("sync", GENERATE))
#: What the generation side must have done as much of as was trained on.
_SHARED_COUNTS = ("samples", "prompt_tokens", "response_tokens")


def training_side(events: Events, manifest: Manifest) -> Events:
    """The events without those of ranks that generate alone; of a colocated run all of them."""
    return _only(events, range(manifest.layout.training_ranks))


def generation_side(events: Events, manifest: Manifest) -> Events:
    """The events of ranks that generate alone; of a colocated run none."""
    return _only(events, range(manifest.layout.training_ranks, manifest.layout.ranks))


def overlap(events: Events, timeline: Timeline, manifest: Manifest) -> Overlap | None:
    """Both sides in the counted iterations that both completed; null of a colocated run, and where there are none."""
    if manifest.layout.placement != "split":
        return None
    training, generating = training_side(events, manifest), generation_side(events, manifest)
    completed = [
        {event.iteration for event in generating.of(rank, Iteration)}
        for rank in range(manifest.layout.training_ranks, manifest.layout.ranks)
    ]
    both = [index for index in timeline.counted if all(index in done for done in completed)]
    if not both:
        return None
    trains = _phase_seconds(training, both)
    exposed = trains.get(GENERATE, 0.0)
    if manifest.layout.asynchronous:
        return asynchronous_overlap(training, generating, events, timeline, trains, exposed)
    generates = _phase_seconds(generating, both)
    if manifest.backend.kind == "trainer":
        generates = {name: seconds for name, seconds in generates.items() if name in _GENERATION_PHASES}
    busy = math.fsum(generates.values())
    return Overlap(
        exposed_generate_seconds=exposed,
        generation_busy_seconds=generates.get(GENERATE, 0.0),
        sides={
            "training": _side(
                training, both, trains, math.fsum(trains.values()) - trains.get(GENERATE, 0.0), waiting=exposed
            ),
            "generation": _side(
                generating,
                both,
                generates,
                busy,
                waiting=max(0.0, _mean_seconds(generating.of_all(Iteration), both) - busy),
            ),
        },
    )


def with_sides_compared(events: Events, timeline: Timeline, manifest: Manifest) -> Timeline:
    """The timeline without its counts where a generation rank tells other work than was trained on."""
    counts = timeline.counts
    if counts is None:
        return timeline
    for event in generation_side(events, manifest).of_all(Iteration):
        if event.iteration in timeline.counted:
            for name in _SHARED_COUNTS:
                known, wanted = getattr(event.counts, name), getattr(counts, name)
                if known != wanted:
                    problem = (
                        f"{name} is {known} on rank {event.rank} in iteration {event.iteration}, which generates, but "
                        f"{wanted} where it is trained"
                    )
                    return replace(timeline, counts=None, counts_problem=problem)
    return timeline


def _only(events: Events, ranks: range) -> Events:
    kept = {rank: written for rank, written in events.ranks.items() if rank in ranks}
    return events if len(kept) == len(events.ranks) else replace(events, ranks=kept)


def _side(events: Events, counted: Sequence[int], phases: dict[str, float], busy: float, waiting: float) -> OverlapSide:
    return OverlapSide(
        ranks=len(events.ranks),
        busy_seconds=busy,
        waiting_seconds=waiting,
        phases=phases,
        memory=side_peaks(events, counted),
    )


def _phase_seconds(events: Events, counted: Sequence[int]) -> dict[str, float]:
    """Mean seconds of each phase that this side has, in the order of its iterations."""
    by_phase: dict[str, list[Phase]] = {}
    for event in events.of_all(Phase):
        by_phase.setdefault(event.phase, []).append(event)
    return {name: _mean_seconds(known, counted) for name, known in by_phase.items()}


def _mean_seconds(known: Iterable[Phase | Iteration], counted: Sequence[int]) -> float:
    """Of each iteration the slowest rank, then the mean."""
    slowest: dict[int, float] = {}
    for event in known:
        if event.iteration in counted:
            slowest[event.iteration] = max(slowest.get(event.iteration, 0.0), event.seconds)
    return math.fsum(slowest.values()) / len(counted)
