"""The two sides of a split run: the training side makes the iterations, the generation side is beside them.

Of an asynchronous run an iteration is the period from the end of one publication of weights to the end of the next; how
old the samples of each were, and how long each role of the devices worked in it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from suite.bundle.event_fields import Iteration, Period, Phase, Role
from suite.bundle.events import Events
from suite.bundle.findings import Finding, one_of
from suite.bundle.parts import Overlap, OverlapRole, OverlapSide
from suite.bundle.timeline import Array, Timeline
from suite.bundle.utilisation import side_peaks
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest

#: The role that every such run has; all others train.
GENERATION = "generation"
#: The phase with which a period ends.
_PUBLICATION = "sync"
GENERATE = "generate"
#: What the generation side does; a trainer's clock tells all phases on all of its ranks.
_GENERATION_PHASES = frozenset((_PUBLICATION, GENERATE))
#: What the generation side must have done as much of as was trained on.
_SHARED_COUNTS = ("samples", "prompt_tokens", "response_tokens")
#: What a role is told to have worked may be above what there was: a share of it, and seconds of each rank.
_ROUNDING_SHARE, _ROUNDING_SECONDS = 0.002, 0.002


def with_sides_compared(timeline: Timeline) -> Timeline:
    """The timeline without its counts where a generation rank tells other work than was trained on, or what a period
    consumed is not told, or is not what was asked for."""
    problem = None if timeline.counts is None else _other_work(timeline) or _wrong_periods(timeline)
    return timeline if problem is None else replace(timeline, counts=None, counts_problem=problem)


def _other_work(timeline: Timeline) -> str | None:
    for event in timeline.counted_events(timeline.generating):
        for name in _SHARED_COUNTS:
            known, wanted = getattr(event.counts, name), getattr(timeline.counts, name)
            if known != wanted:
                where = f"on rank {event.rank} in iteration {event.iteration}, which generates"
                return f"{name} is {known} {where}, but {wanted} where it is trained"
    return None


def _wrong_periods(timeline: Timeline) -> str | None:
    layout, rows = timeline.manifest.layout, timeline.events.of(0, Iteration)
    if not layout.asynchronous:
        for event in timeline.events.of_all(Iteration):
            if event.asynchronous:
                what = f"rank {event.rank} tells that iteration {event.iteration} was asynchronous"
                return f"{what}, the layout is not: it has a staleness of 0"
        return None
    for index in timeline.counted:
        problem = _wrong_period(rows, index, layout)
        if problem:
            return f"iteration {index}: {problem}"
    for event in timeline.counted_events():
        if event.asynchronous not in (None, rows[event.iteration].asynchronous):
            return f"iteration {event.iteration}: rank {event.rank} tells other staleness or roles than rank 0"
    return None


def _wrong_period(rows: Sequence[Iteration], index: int, layout: Layout) -> str | None:
    known, before = rows[index].asynchronous, rows[index - 1].asynchronous if index else None
    if known is None:
        return "it is not told how old its samples were, and who worked"
    samples, consumed = rows[index].counts.samples, sum(known.staleness.values())
    if consumed != samples:
        return f"the staleness is told of {consumed} samples, and {samples} were consumed"
    oldest = _oldest(known)
    if oldest > layout.staleness:
        return f"a sample was {oldest} publications old, the layout allows {layout.staleness}"
    roles = _ranks_of(known.roles)
    if roles.get(GENERATION) != layout.generation_ranks or sum(roles.values()) != layout.ranks:
        wanted = f"{layout.generation_ranks} for {GENERATION} of {layout.ranks}"
        return f"the roles have {roles} ranks, the layout has {wanted}"
    earlier = roles if before is None else _ranks_of(before.roles)
    return None if roles == earlier else f"the roles have {roles} ranks, and {earlier} in the iteration before"


def _ranks_of(roles: Mapping[str, Role]) -> dict[str, int]:
    return {name: role.ranks for name, role in roles.items()}


def _oldest(known: Period) -> int:
    return max((int(age) for age, samples in known.staleness.items() if samples), default=0)


def greatest_staleness(timeline: Timeline) -> int | None:
    """In publications, of all samples that were consumed in counted periods; null where none is told."""
    return max(map(_oldest, _periods(timeline)), default=None)


def _periods(timeline: Timeline) -> list[Period]:
    """Those that count, as rank 0 tells them."""
    return [event.asynchronous for event in timeline.counted_events() if event.rank == 0 and event.asynchronous]


def overlap(timeline: Timeline) -> Overlap | None:
    """Both sides in the counted iterations that both completed; null of a colocated run, and where there are none."""
    manifest, training, generating = timeline.manifest, timeline.training, timeline.generating
    if manifest.layout.placement != "split":
        return None
    ranks = range(manifest.layout.training_ranks, manifest.layout.ranks)
    completed = min(len(generating.of(rank, Iteration)) for rank in ranks)
    both = [index for index in timeline.counted if index < completed]
    if not both:
        return None
    trains = _phase_seconds(training, both)
    if manifest.layout.asynchronous:
        return _asynchronous_overlap(timeline, trains)
    exposed, generates = trains.get(GENERATE, 0.0), _phase_seconds(generating, both)
    if manifest.backend.kind == "trainer":
        generates = {name: seconds for name, seconds in generates.items() if name in _GENERATION_PHASES}
    busy, whole = math.fsum(generates.values()), _mean_of_slowest(generating.times.seconds[:, both])
    return Overlap(
        exposed_generate_seconds=exposed,
        generation_busy_seconds=generates.get(GENERATE, 0.0),
        sides={
            "training": _side(training, both, trains, math.fsum(trains.values()) - exposed, waiting=exposed),
            "generation": _side(generating, both, generates, busy, waiting=max(0.0, whole - busy)),
        },
    )


def _asynchronous_overlap(timeline: Timeline, phases: dict[str, float]) -> Overlap | None:
    """Over the counted periods; null where one of them does not tell. ``phases``: mean seconds of the training side."""
    known, counted = _periods(timeline), timeline.counted
    if len(known) < len(counted) or timeline.counts is None:
        return None
    whole = math.fsum(timeline.counted_seconds)
    roles = {name: _role(name, known, whole) for name in known[0].roles}
    trains, generates = _busy(roles, is_generation=False), _busy(roles, is_generation=True)
    period = whole / len(known)
    return Overlap(
        exposed_generate_seconds=phases.get(GENERATE, 0.0),
        generation_busy_seconds=generates,
        sides={
            "training": _side(timeline.training, counted, phases, trains, max(0.0, period - trains)),
            "generation": _side(timeline.generating, counted, {}, generates, max(0.0, period - generates)),
        },
        roles=roles,
        staleness=_shares(known),
    )


def _role(name: str, known: Sequence[Period], whole: float) -> OverlapRole:
    roles = [each.roles[name] for each in known]
    busy, ranks = math.fsum(role.busy_seconds for role in roles), roles[0].ranks
    share = min(1.0, busy / (ranks * whole))
    return OverlapRole(ranks=ranks, busy_seconds=busy / len(known), busy_share=share, idle_share=1.0 - share)


def _busy(roles: dict[str, OverlapRole], is_generation: bool) -> float:
    """Mean over the ranks of one side, in seconds of a period."""
    side = [role for name, role in roles.items() if (name == GENERATION) == is_generation]
    return math.fsum(role.busy_seconds for role in side) / sum(role.ranks for role in side)


def _shares(known: Sequence[Period]) -> dict[str, float]:
    """Of the consumed samples, by how many publications old they were."""
    samples: dict[int, int] = {}
    for each in known:
        for age, count in each.staleness.items():
            samples[int(age)] = samples.get(int(age), 0) + count
    consumed = sum(samples.values())
    return {str(age): count / consumed for age, count in sorted(samples.items()) if count}


def _side(events: Events, counted: Sequence[int], phases: dict[str, float], busy: float, waiting: float) -> OverlapSide:
    ranks, peaks = len(events.ranks), side_peaks(events, counted)
    return OverlapSide(ranks=ranks, busy_seconds=busy, waiting_seconds=waiting, phases=phases, memory=peaks)


def _phase_seconds(events: Events, counted: Sequence[int]) -> dict[str, float]:
    """Mean seconds of each phase that this side has, in the order of its iterations."""
    own = np.nan_to_num(events.times.own[:, counted])
    return {name: _mean_of_slowest(own[:, :, place]) for place, name in enumerate(events.times.phases)}


def _mean_of_slowest(seconds: Array) -> float:
    """By rank and iteration: of each iteration the slowest rank, then the mean."""
    return math.fsum(seconds.max(axis=0).tolist()) / seconds.shape[1]


def period_findings(events: Events, manifest: Manifest) -> Iterator[Finding]:
    """Periods that are none, and roles that worked for longer than there was time; nothing of a synchronous run.

    A period is from the end of one publication to that of the next, whose numbers go up by one.
    """
    texts: list[str] = []
    late: list[str] = []
    phases = {event.iteration: event.phase for event in events.of(0, Phase)}  # the last of each
    before: Period | None = None
    for event in events.of(0, Iteration) if manifest.layout.asynchronous else ():
        known, ends = event.asynchronous, f"iteration {event.iteration} ends with"
        phase = phases.get(event.iteration, "no phase")
        if phase != _PUBLICATION:
            texts.append(f"{ends} {phase}, not with a publication (sync)")
        if known and before and known.publication != before.publication + 1:
            numbers = f"publication {known.publication}, the one before with {before.publication}"
            texts.append(f"{ends} {numbers}: that is no period")
        if known and event.iteration == known.publication == 0:
            texts.append(f"{ends} no publication: that is no period")
        for name, role in known.roles.items() if known else ():
            there = role.ranks * event.seconds
            if role.busy_seconds > there * (1 + _ROUNDING_SHARE) + role.ranks * _ROUNDING_SECONDS:
                worked = f"{name} worked for {role.busy_seconds:.6g} s in iteration {event.iteration}"
                late.append(f"{worked}, in which its {role.ranks} ranks had {there:.6g} s")
        before = known
    yield from one_of("periods", texts)
    yield from one_of("role-times", late)
