"""What generating a row's samples was like: their lengths, what unevenness cost, what made them, how old they were."""

from collections.abc import Sequence
from dataclasses import dataclass

from suite.bundle.parts import OverlapRole, OverlapSide
from suite.bundle.record import RealisedLengths, Record
from suite.report.facts.costs import OF_THE_RUN, peaks_of
from suite.spec.base import digest
from suite.spec.manifest import Manifest
from suite.stats.intervals import Interval, pooled_mean


@dataclass(frozen=True)
class RoleUse:
    """Devices with one task: seconds of a period that one of its ranks worked, in the mean, and as a share of it."""

    name: str
    ranks: int
    busy_seconds: float
    busy_share: Interval


@dataclass(frozen=True)
class Rollout:
    """Every figure is null where a run does not tell.

    ``lengths``: null where samples are even. ``padded_share`` of the positions that train, ``idle_slot_share`` of the
    token steps until the longest sample of each replica ends, ``idle_slot_seconds`` that a mean sample waits for it.
    How well the log-probs of what generates agree with the policy's own. ``staleness``: in updates, the greatest.

    Of generation on ranks of its own, in seconds of an iteration: training waits for ``exposed`` of ``generating``.
    Peaks of both sides: reserved on a GPU, resident on a CPU. Of asynchronous rows ``ages``: the share of the consumed
    samples that was so many publications of weights old, and ``roles``; else both are empty.
    """

    lengths: RealisedLengths | None
    padded_share: float | None
    idle_slot_share: float | None
    idle_slot_seconds: float | None
    logprob_difference_mean: float | None
    logprob_difference_max: float | None
    effective_sample_size: float | None
    staleness: int | None
    generating: float | None
    exposed: float | None
    training: float | None
    waiting: float | None
    training_bytes: int | None
    generation_bytes: int | None
    ages: tuple[tuple[int, float], ...]
    roles: tuple[RoleUse, ...]


def lengths_hash_of(manifest: Manifest) -> str:
    """Equal where samples have the same lengths one by one; empty where they are even, and the work's hash tells."""
    drawn = manifest.work.lengths
    return "" if drawn is None else digest(drawn.model_dump(mode="json"))


def rollout_of(records: Sequence[Record]) -> Rollout:
    """Means over runs are weighted by their iterations."""
    weights = [record.steady_state.iterations for record in records]

    def mean(parts: Sequence[object], name: str) -> float | None:
        known = [value for part in parts if (value := getattr(part, name, None)) is not None]
        return pooled_mean(known, weights).value if known and len(known) == len(records) else None

    def peak(sides: Sequence[OverlapSide | None]) -> int | None:
        return max(peaks_of([side.memory if side else None for side in sides], OF_THE_RUN)[1], default=None)

    engine, overlaps = ([getattr(record, part) for record in records] for part in ("rollout", "overlap"))
    greatest = [one.logprob_difference_max for one in engine if one]
    stale = [record.staleness for record in records]
    training, generation = (
        [one.sides[side] if one else None for one in overlaps] for side in ("training", "generation")
    )
    periods = overlaps if all(one and one.roles for one in overlaps) else []
    histograms = [one.staleness or {} for one in periods]
    ages = sorted({int(age) for histogram in histograms for age in histogram})
    roles = [one.roles for one in periods]
    return Rollout(
        lengths=next((record.lengths for record in records if record.lengths), None),
        padded_share=mean([record.padding for record in records], "share"),
        idle_slot_share=mean(engine, "idle_slot_share"),
        idle_slot_seconds=mean(engine, "idle_slot_seconds"),
        logprob_difference_mean=mean(engine, "logprob_difference_mean"),
        logprob_difference_max=max((one for one in greatest if one is not None), default=None),
        effective_sample_size=mean(engine, "effective_sample_size"),
        staleness=max((count for count in stale if count is not None), default=None),
        generating=mean(overlaps, "generation_busy_seconds"),
        exposed=mean(overlaps, "exposed_generate_seconds"),
        training=mean(training, "busy_seconds"),
        waiting=mean(generation, "waiting_seconds"),
        training_bytes=peak(training),
        generation_bytes=peak(generation),
        ages=tuple((age, pooled_mean([one.get(str(age), 0.0) for one in histograms], weights).value) for age in ages),
        roles=tuple(
            _role(name, [one[name] for one in roles], weights)
            for name in (roles[0] if roles else ())
            if all(name in one for one in roles)
        ),
    )


def _role(name: str, known: Sequence[OverlapRole], weights: Sequence[int]) -> RoleUse:
    found = pooled_mean([role.busy_share for role in known], weights)
    # its bounds are within what a share can be
    low, high = (None if bound is None else min(1.0, max(0.0, bound)) for bound in (found.low, found.high))
    seconds = pooled_mean([role.busy_seconds / role.ranks for role in known], weights).value
    return RoleUse(name, known[0].ranks, seconds, Interval(min(1.0, found.value), low, high))
