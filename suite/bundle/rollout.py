"""How long the samples were, what uneven lengths cost, and how generation agreed with the policy that trains."""

import math
from collections.abc import Iterable, Mapping, Sequence

from suite.bundle.event_fields import Iteration
from suite.bundle.events import Events
from suite.bundle.facts import derivation
from suite.bundle.files import DamagedBundle
from suite.bundle.record import Counts, LengthSummary, Padding, RealisedLengths, Rollout
from suite.bundle.sides import greatest_staleness
from suite.bundle.timeline import Timeline
from suite.spec.lengths import Lengths
from suite.spec.manifest import Manifest

_Rollout = Mapping[str, float | None]


def realised_lengths(manifest: Manifest) -> RealisedLengths | None:
    """Of the samples of every iteration, as the manifest lists them; null where all are of one length."""
    drawn = manifest.work.lengths
    if drawn is None:
        return None
    workload = manifest.workload
    return RealisedLengths(
        prompt=_summary(drawn.prompt, workload.prompt_lengths), response=_summary(drawn.response, workload.lengths)
    )


def padding(manifest: Manifest, counts: Counts | None) -> Padding | None:
    """What went through training as padding; null where samples are even, and where no iteration was completed."""
    if manifest.work.lengths is None or counts is None:
        return None
    if counts.padded_tokens is None or counts.trained_tokens is None:
        return None
    positions = counts.padded_tokens + counts.trained_tokens
    return Padding(
        padded_tokens=counts.padded_tokens,
        share=counts.padded_tokens / positions if positions else 0.0,
        packed=manifest.layout.packing,
    )


def rollout(events: Events, timeline: Timeline, manifest: Manifest) -> Rollout | None:
    """Figures of generation over the counted iterations; null where samples are even and no rank tells any."""
    if derivation(events) < 2:
        return None
    counted = frozenset(timeline.counted)
    known = [event.rollout for event in events.of_all(Iteration) if event.rollout and event.iteration in counted]
    share = _idle_slot_share(manifest)
    if not known and share is None:
        return None
    size = _mean(known, "effective_sample_size")
    return Rollout(
        idle_slot_share=share,
        idle_slot_seconds=_mean(known, "idle_slot_seconds"),
        logprob_difference_mean=_mean(known, "logprob_difference_mean"),
        logprob_difference_max=max(_known(known, "logprob_difference_max"), default=None),
        effective_sample_size=None if size is None else min(1.0, size),
    )


def staleness(events: Events, timeline: Timeline) -> int | None:
    """Updates of the weights between those that generated the samples and those that train on them: the most of the
    counted iterations; of an asynchronous run in publications.

    Raises DamagedBundle where ranks tell different ones of one iteration.
    """
    if derivation(events) < 2:
        return None
    if timeline.asynchronous:
        return greatest_staleness(events, timeline)
    counted = frozenset(timeline.counted)
    first: dict[int, Iteration] = {}
    for event in events.of_all(Iteration):
        if event.staleness is None:
            continue
        before = first.setdefault(event.iteration, event)
        if before.staleness != event.staleness:
            raise DamagedBundle(
                f"staleness is {event.staleness} on rank {event.rank} in iteration {event.iteration}, but "
                f"{before.staleness} on rank {before.rank}"
            )
    known = [event.staleness for index, event in first.items() if index in counted and event.staleness is not None]
    return max(known, default=None)


def staleness_notes(found: int | None, manifest: Manifest) -> tuple[str, ...]:
    """Ranks that tell of stale samples where every rank generates and trains in turn."""
    if not found or manifest.layout.placement == "split":
        return ()
    return (f"ranks tell a staleness of {found}, although the layout lets every rank generate and train in turn",)


def _summary(lengths: Sequence[int], asked: Lengths | None) -> LengthSummary:
    """Percentiles are lengths that occur: the least that so many of the samples do not exceed."""
    if not lengths or min(lengths) < 1:
        raise DamagedBundle("manifest.json: work.lengths holds a length below one token, or none at all")
    ordered = sorted(lengths)
    cap = None if asked is None else asked.cap
    return LengthSummary(
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
    """Of the token steps that a replica's samples take part in until its longest one ends, those after their own end.

    Each replica, or each rank that only generates, holds all of its samples at once.
    """
    if manifest.work.lengths is None:
        return None
    responses = manifest.work.lengths.response
    rows = max(1, len(responses) // (manifest.layout.generation_ranks or manifest.layout.data))
    batches = [responses[first : first + rows] for first in range(0, len(responses), rows)]
    return 1.0 - sum(responses) / sum(len(batch) * max(batch) for batch in batches)


def _known(known: Iterable[_Rollout], name: str) -> list[float]:
    return [value for each in known if (value := each.get(name)) is not None]


def _mean(known: Iterable[_Rollout], name: str) -> float | None:
    """Over iterations and the ranks that tell it, whose samples are as many."""
    values = _known(known, name)
    return math.fsum(values) / len(values) if values else None
