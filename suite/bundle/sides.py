"""The two sides of a split run: the training side makes the iterations, the generation side is beside them.

Of an asynchronous run an iteration is the period from the end of one publication of weights to the end of the next; how
old the samples of each were, and how long each role of the devices worked in it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from suite.bundle.event_fields import Iteration, Period, Phase
from suite.bundle.events import Events
from suite.bundle.findings import Finding, one_of
from suite.bundle.overlap_model import Overlap, OverlapRole, OverlapSide
from suite.bundle.peaks import side_peaks
from suite.bundle.rank_times import Array
from suite.bundle.record import Counts
from suite.bundle.timeline import Timeline
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


def with_sides_compared(events: Events, timeline: Timeline, manifest: Manifest) -> Timeline:
    """The timeline without its counts where a generation rank tells other work than was trained on, or what a period
    consumed is not told, or is not what was asked for."""
    if timeline.counts is None:
        return timeline
    generating = generation_side(events, manifest)
    problem = _other_work(generating, timeline, timeline.counts) or _wrong_periods(events, timeline, manifest)
    return timeline if problem is None else replace(timeline, counts=None, counts_problem=problem)


def _other_work(generating: Events, timeline: Timeline, counts: Counts) -> str | None:
    for event in generating.of_all(Iteration):
        for name in _SHARED_COUNTS if event.iteration in timeline.counted else ():
            known, wanted = getattr(event.counts, name), getattr(counts, name)
            if known != wanted:
                where = f"on rank {event.rank} in iteration {event.iteration}, which generates"
                return f"{name} is {known} {where}, but {wanted} where it is trained"
    return None


def _wrong_periods(events: Events, timeline: Timeline, manifest: Manifest) -> str | None:
    if not manifest.layout.asynchronous:
        teller = next((event for event in events.of_all(Iteration) if event.asynchronous), None)
        if teller is None:
            return None
        return (
            f"rank {teller.rank} tells that iteration {teller.iteration} was asynchronous, the layout is not: it "
            "has a staleness of 0"
        )
    rows = events.of(0, Iteration)
    for index in timeline.counted:
        problem = _wrong_period(rows, index, manifest) or _other_words(events, rows[index])
        if problem:
            return f"iteration {index}: {problem}"
    return None


def _wrong_period(rows: Sequence[Iteration], index: int, manifest: Manifest) -> str | None:
    known, layout = rows[index].asynchronous, manifest.layout
    if known is None:
        return "it is not told how old its samples were, and who worked"
    samples = rows[index].counts.samples
    consumed = sum(known.staleness.values())
    if consumed != samples:
        return f"the staleness is told of {consumed} samples, and {samples} were consumed"
    oldest = _oldest(known)
    if oldest > layout.staleness:
        return f"a sample was {oldest} publications old, the layout allows {layout.staleness}"
    roles = {name: role.ranks for name, role in known.roles.items()}
    wanted = f"{layout.generation_ranks} for {GENERATION} of {layout.ranks}"
    if roles.get(GENERATION) != layout.generation_ranks or sum(roles.values()) != layout.ranks:
        return f"the roles have {roles} ranks, the layout has {wanted}"
    before = rows[index - 1].asynchronous if index else None
    earlier = roles if before is None else {name: role.ranks for name, role in before.roles.items()}
    return None if roles == earlier else f"the roles have {roles} ranks, and {earlier} in the iteration before"


def _other_words(events: Events, known: Iteration) -> str | None:
    """What another rank tells otherwise; most tell nothing."""
    for rank in events.ranks:
        rows = events.of(rank, Iteration)
        own = rows[known.iteration].asynchronous if known.iteration < len(rows) else None
        if own is not None and own != known.asynchronous:
            return f"rank {rank} tells other staleness or roles than rank 0"
    return None


def _oldest(known: Period) -> int:
    return max((int(age) for age, samples in known.staleness.items() if samples), default=0)


def greatest_staleness(events: Events, timeline: Timeline) -> int | None:
    """In publications, of all samples that were consumed in counted periods; null where none is told."""
    return max(map(_oldest, _counted(events, timeline)), default=None)


def asynchronous_overlap(
    training: Events, generating: Events, events: Events, timeline: Timeline, phases: dict[str, float], exposed: float
) -> Overlap | None:
    """Both sides and all roles over the counted periods; null where one of them does not tell.

    ``phases``: mean seconds of the training side's phases, of which ``exposed`` it waited for samples.
    """
    known = _counted(events, timeline)
    if not known or len(known) < len(timeline.counted) or timeline.counts is None:
        return None
    whole = math.fsum(timeline.counted_seconds)
    roles = {name: _role(name, known, whole) for name in known[0].roles}
    generates = _busy(roles, is_generation=True)

    def side(of: Events, busy: float, phases: dict[str, float]) -> OverlapSide:
        return _side(of, timeline.counted, phases, busy, waiting=max(0.0, whole / len(known) - busy))

    return Overlap(
        exposed_generate_seconds=exposed,
        generation_busy_seconds=generates,
        sides={
            "training": side(training, _busy(roles, is_generation=False), phases),
            "generation": side(generating, generates, {}),
        },
        roles=roles,
        staleness=_shares(known),
    )


def period_findings(events: Events, manifest: Manifest) -> Iterator[Finding]:
    """Periods that are none, and roles that worked for longer than there was time; nothing of a synchronous run."""
    if not manifest.layout.asynchronous:
        return
    rows = events.of(0, Iteration)
    yield from one_of("periods", [*_no_steps(rows), *_no_publications(events)])
    yield from one_of("role-times", [text for event in rows for text in _worked_too_long(event)])


def _no_steps(rows: Sequence[Iteration]) -> Iterator[str]:
    """From the end of one publication to that of the next: they go up by one."""
    numbers = [event.asynchronous.publication if event.asynchronous else None for event in rows]
    for index, (before, after) in enumerate(pairwise(numbers), start=1):
        if before is not None and after is not None and after != before + 1:
            yield f"iteration {index} ends with publication {after}, the one before with {before}: that is no period"
    if numbers and numbers[0] == 0:
        yield "iteration 0 ends with no publication: that is no period"


def _no_publications(events: Events) -> Iterator[str]:
    last = None
    for event in events.ranks.get(0, ()):
        if isinstance(event, Phase):
            last = event.phase
        elif isinstance(event, Iteration):
            if last != _PUBLICATION:
                yield f"iteration {event.iteration} ends with {last or 'no phase'}, not with a publication (sync)"
            last = None


def _worked_too_long(event: Iteration) -> Iterator[str]:
    roles = event.asynchronous.roles if event.asynchronous else {}
    for name, role in roles.items():
        there = role.ranks * event.seconds
        if role.busy_seconds > there * (1 + _ROUNDING_SHARE) + role.ranks * _ROUNDING_SECONDS:
            yield (
                f"{name} worked for {role.busy_seconds:.6g} s in iteration {event.iteration}, in which its "
                f"{role.ranks} ranks had {there:.6g} s"
            )


def _counted(events: Events, timeline: Timeline) -> list[Period]:
    counted = frozenset(timeline.counted)
    return [
        event.asynchronous for event in events.of(0, Iteration) if event.iteration in counted and event.asynchronous
    ]


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
    ranks = range(manifest.layout.training_ranks, manifest.layout.ranks)
    completed = min(len(generating.of(rank, Iteration)) for rank in ranks)
    both = [index for index in timeline.counted if index < completed]
    if not both:
        return None
    trains = _phase_seconds(training, both)
    exposed = trains.get(GENERATE, 0.0)
    if manifest.layout.asynchronous:
        return asynchronous_overlap(training, generating, events, timeline, trains, exposed)
    generates = _phase_seconds(generating, both)
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
    own = np.nan_to_num(events.times.own[:, counted])
    return {name: _mean_of_slowest(own[:, :, place]) for place, name in enumerate(events.times.phases)}


def _mean_of_slowest(seconds: Array) -> float:
    """By rank and iteration: of each iteration the slowest rank, then the mean."""
    return math.fsum(seconds.max(axis=0).tolist()) / seconds.shape[1]
