"""The two sides of a split run: the training side's events make the iterations, the generation side's are beside."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from suite.bundle.asynchronous import asynchronous_overlap
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
        {event["iteration"] for event in generating.ranks.get(rank, ()) if event["kind"] == "iteration"}
        for rank in range(manifest.layout.training_ranks, manifest.layout.ranks)
    ]
    both = [index for index in timeline.counted if all(index in done for done in completed)]
    if not both:
        return None
    exposed = _mean_seconds(training, both, "phase", GENERATE)
    trains = _phase_seconds(training, both)
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
                waiting=max(0.0, _mean_seconds(generating, both, "iteration", None) - busy),
            ),
        },
    )


def with_sides_compared(events: Events, timeline: Timeline, manifest: Manifest) -> Timeline:
    """The timeline without its counts where a generation rank tells other work than was trained on."""
    counts = timeline.counts
    if counts is None:
        return timeline
    for rank, written in generation_side(events, manifest).ranks.items():
        for event in written:
            if event["kind"] == "iteration" and event["iteration"] in timeline.counted:
                for name in _SHARED_COUNTS:
                    if event["counts"][name] != getattr(counts, name):
                        problem = (
                            f"{name} is {event['counts'][name]} on rank {rank} in iteration {event['iteration']}, "
                            f"which generates, but {getattr(counts, name)} where it is trained"
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
    names = dict.fromkeys(
        event["phase"] for written in events.ranks.values() for event in written if event["kind"] == "phase"
    )
    return {name: _mean_seconds(events, counted, "phase", name) for name in names}


def _mean_seconds(events: Events, counted: Sequence[int], kind: str, phase: str | None) -> float:
    """Of each iteration the slowest rank, then the mean."""
    slowest: dict[int, float] = {}
    for written in events.ranks.values():
        for event in written:
            if event["kind"] == kind and event.get("phase") == phase and event["iteration"] in counted:
                index = event["iteration"]
                slowest[index] = max(slowest.get(index, 0.0), float(event["seconds"]))
    return math.fsum(slowest.values()) / len(counted)
