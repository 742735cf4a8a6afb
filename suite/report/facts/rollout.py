"""What generating a row's samples was like: their lengths, what unevenness cost, what made them, how old they were."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from suite.bundle.parts import OverlapRole
from suite.bundle.record import LengthSummary, Record
from suite.report.facts.costs import OF_THE_RUN, peaks_of
from suite.spec.base import digest
from suite.spec.manifest import Manifest
from suite.stats.intervals import Interval, pooled_mean


@dataclass(frozen=True)
class Unevenness:
    """How long uneven samples are, and what that cost: ``padded_share`` of the positions that train,
    ``idle_slot_share`` of the token steps until the longest sample of each replica ends, ``idle_slot_seconds`` that a
    mean sample waits for it."""

    samples: int
    prompt: LengthSummary
    response: LengthSummary
    padded_share: float | None
    packed: bool
    balanced: bool
    idle_slot_share: float | None
    idle_slot_seconds: float | None


@dataclass(frozen=True)
class Overlap:
    """Generation beside training, on ranks of its own, in seconds of an iteration: training waits for ``exposed`` of
    it. Peaks: reserved on a GPU, resident on a CPU; null where a run does not know."""

    generating: float
    exposed: float
    training: float
    waiting: float
    training_bytes: int | None
    generation_bytes: int | None


@dataclass(frozen=True)
class Generation:
    """An engine, or ranks, that generate in the policy's place, and how well their log-probs agree with its own.
    ``asleep``: it holds no memory while the policy trains. ``ranks``: those that only generate; 0: all do both.
    ``order``: whether these do the next batch while the others train, in turn with them, or as far ahead as a queue
    lets them."""

    engine: str
    asleep: bool
    ranks: int
    order: Literal["ahead", "in turn", "asynchronous"] | None
    staleness: int | None
    logprob_difference_mean: float | None
    logprob_difference_max: float | None
    effective_sample_size: float | None
    overlap: Overlap | None


def lengths_hash_of(manifest: Manifest) -> str:
    """Equal where samples have the same lengths one by one; empty where they are even, and the work's hash tells."""
    drawn = manifest.work.lengths
    return "" if drawn is None else digest(drawn.model_dump(mode="json"))


def unevenness_of(manifest: Manifest, records: Sequence[Record]) -> Unevenness | None:
    """Null where samples are even, and where no run was measured."""
    lengths = next((record.lengths for record in records if record.lengths), None)
    if lengths is None:
        return None
    return Unevenness(
        samples=manifest.work.global_rollouts,
        prompt=lengths.prompt,
        response=lengths.response,
        padded_share=_mean(records, "padding", "share"),
        packed=manifest.layout.packing,
        balanced=manifest.layout.balance,
        idle_slot_share=_mean(records, "rollout", "idle_slot_share"),
        idle_slot_seconds=_mean(records, "rollout", "idle_slot_seconds"),
    )


def generation_of(manifest: Manifest, records: Sequence[Record]) -> Generation | None:
    """Null where every rank generates on the training stack, and where no run was measured."""
    layout = manifest.layout
    if not records or (layout.generation == "hf" and layout.placement == "colocated"):
        return None
    greatest = [record.rollout.logprob_difference_max for record in records if record.rollout]
    stale = [record.staleness for record in records]
    order: Literal["ahead", "in turn"] = "ahead" if manifest.backend.kind == "engine" else "in turn"
    return Generation(
        engine=layout.generation,
        asleep=layout.engine_sleep,
        ranks=layout.generation_ranks,
        order=None if layout.placement != "split" else "asynchronous" if layout.asynchronous else order,
        staleness=max((count for count in stale if count is not None), default=None),
        logprob_difference_mean=_mean(records, "rollout", "logprob_difference_mean"),
        logprob_difference_max=max((one for one in greatest if one is not None), default=None),
        effective_sample_size=_mean(records, "rollout", "effective_sample_size"),
        overlap=_overlap(records),
    )


def _overlap(records: Sequence[Record]) -> Overlap | None:
    """Null where a run does not tell."""
    known = [record.overlap for record in records if record.overlap]
    if not known or len(known) < len(records):
        return None
    weights = [record.steady_state.iterations for record in records]
    training, generation = ([one.sides[side] for one in known] for side in ("training", "generation"))
    return Overlap(
        generating=pooled_mean([one.generation_busy_seconds for one in known], weights).value,
        exposed=pooled_mean([one.exposed_generate_seconds for one in known], weights).value,
        training=pooled_mean([side.busy_seconds for side in training], weights).value,
        waiting=pooled_mean([side.waiting_seconds for side in generation], weights).value,
        training_bytes=max(peaks_of([side.memory for side in training], OF_THE_RUN)[1], default=None),
        generation_bytes=max(peaks_of([side.memory for side in generation], OF_THE_RUN)[1], default=None),
    )


def _mean(records: Sequence[Record], part: str, name: str) -> float | None:
    """Of a figure of a part of the records, weighted by their iterations; null where one does not tell."""
    known = [value for record in records if (value := getattr(getattr(record, part), name, None)) is not None]
    if not known or len(known) < len(records):
        return None
    return pooled_mean(known, [record.steady_state.iterations for record in records]).value


@dataclass(frozen=True)
class RoleUse:
    """Devices with one task: seconds of a period that one of its ranks worked, in the mean, and as a share of it."""

    name: str
    ranks: int
    busy_seconds: float
    busy_share: Interval
    idle_share: Interval


@dataclass(frozen=True)
class Asynchronous:
    """``staleness``: of the consumed samples the share that was so many publications of weights old, of which ``bound``
    are allowed. ``exposed``: seconds of a period that training waited for samples."""

    bound: int
    staleness: tuple[tuple[int, float], ...]
    exposed: float
    roles: tuple[RoleUse, ...]


def asynchronous_of(manifest: Manifest, records: Sequence[Record]) -> Asynchronous | None:
    """Null of a synchronous row, and where a run does not tell. Runs are weighted by their periods."""
    known = [record.overlap for record in records if record.overlap and record.overlap.roles]
    if not manifest.layout.asynchronous or not known or len(known) < len(records):
        return None
    weights = [record.steady_state.iterations for record in records]
    names = list(dict.fromkeys(name for one in known for name in one.roles or ()))
    shared = [name for name in names if all(name in (one.roles or ()) for one in known)]
    histograms = [one.staleness or {} for one in known]
    ages = sorted({int(age) for histogram in histograms for age in histogram})
    shares = [pooled_mean([histogram.get(str(age), 0.0) for histogram in histograms], weights).value for age in ages]
    return Asynchronous(
        bound=manifest.layout.staleness,
        staleness=tuple(zip(ages, shares, strict=True)),
        exposed=pooled_mean([one.exposed_generate_seconds for one in known], weights).value,
        roles=tuple(_role(name, [one.roles[name] for one in known if one.roles], weights) for name in shared),
    )


def _role(name: str, known: Sequence[OverlapRole], weights: Sequence[int]) -> RoleUse:
    found = pooled_mean([role.busy_share for role in known], weights)
    # its bounds are within what a share can be
    low, high = (None if bound is None else min(1.0, max(0.0, bound)) for bound in (found.low, found.high))
    busy = Interval(min(1.0, found.value), low, high)
    idle = Interval(1 - busy.value, *(None if bound is None else 1 - bound for bound in (busy.high, busy.low)))
    seconds = pooled_mean([role.busy_seconds / role.ranks for role in known], weights).value
    return RoleUse(name, known[0].ranks, seconds, busy, idle)
