"""Whether what a bundle reports fits together: clocks, barriers, copies, memory and facts (docs/evidence.md).

Every tolerance has a part that grows with what is compared. Where something must hold in each iteration it is tight, as
an honest run cannot break it; where a busy machine may be late, it is asked of three iterations in four.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from suite.bundle.event_fields import DriverEnd, Launch, kind_of
from suite.bundle.events import Events, rank_name
from suite.bundle.facts import fact_findings, memory_findings
from suite.bundle.findings import Finding, one_of
from suite.bundle.parts import Noise
from suite.bundle.record import NO_WORK, Record
from suite.bundle.sides import period_findings
from suite.bundle.timeline import Array, RankTimes
from suite.bundle.validity import LOST_SHARE, OTHERS_CPUS
from suite.spec.manifest import Manifest

_Mask = NDArray[np.bool_]
_Seconds = TypeVar("_Seconds", Array, float)


@dataclass(frozen=True)
class Slack:
    """How much may be missing: ``seconds`` and a ``share`` of what it is held against."""

    seconds: float
    share: float

    def of(self, value: _Seconds) -> _Seconds:
        return self.seconds + self.share * value


#: A measured stretch lies between its events, whatever the machine does; the clock of events is slewed, not set.
_WITHIN = Slack(0.002, 0.002)
#: Phases follow each other inside of their iteration, on one clock.
_SUM = Slack(0.0001, 0.0001)
#: A trainer's own log is read as it grows, a moment after each line was written.
_READ_LATE = Slack(1.0, 0.01)
#: A trainer does work of its own between iterations.
_BETWEEN_OF_TRAINER = Slack(0.05, 0.6)
#: The driver starts the ranks and waits for them.
_DRIVER = Slack(0.5, 0.001)
_FEWEST = 3
#: A burst of other work makes one rank late at several barriers in a row.
_FEWEST_BARRIERS = 6
_COPY_DIGITS = 6


@dataclass(frozen=True)
class Slacks:
    """What a machine may add to measured stretches, as that of one rank does."""

    #: Between two iterations an engine counts, writes its event and meets the others.
    between: Slack = Slack(0.005, 0.05)
    #: No single iteration is as late as this by being interrupted.
    between_once: Slack = Slack(0.25, 0.5)
    #: Between the phases of an engine there is nothing to do.
    beside_phase: Slack = Slack(0.003, 0.05)
    #: Ranks leave a barrier together; one or the other is put on its CPU late.
    together: Slack = Slack(0.01, 0.05)
    late_once: Slack = Slack(0.5, 0.2)
    #: What the times of their events do not show of it.
    unseen_once: Slack = Slack(0.25, 0.2)


#: Several ranks wait for each other.
_SEVERAL = Slacks(between=Slack(0.01, 0.05))
#: Others had CPUs of the run, which is suspect for that and in no ranking: half of its time can still not be missing.
_OFTEN, _ONCE = Slack(0.01, 0.6), Slack(1.0, 2.0)
#: A rank is put on its CPU after several others have had their slices, of some milliseconds each.
_CROWDED = Slacks(_OFTEN, _ONCE, _OFTEN, replace(_OFTEN, seconds=0.02), _ONCE, _ONCE)


def _slacks(manifest: Manifest, noise: Noise | None) -> Slacks:
    usual = Slacks() if manifest.layout.ranks == 1 else _SEVERAL
    if noise is not None:
        others, stolen = noise.others_cpus, noise.steal_share
        if (others is not None and others.worst > OTHERS_CPUS) or (stolen is not None and stolen.worst > LOST_SHARE):
            usual = _CROWDED
    return usual if _is_close(manifest) else replace(usual, between=_BETWEEN_OF_TRAINER)


def _is_close(manifest: Manifest) -> bool:
    """Whether iterations follow each other closely: the suite's own, and periods of an asynchronous trainer, behind
    whose ends others go on working."""
    return manifest.backend.kind == "engine" or manifest.layout.asynchronous


class Stretches(NamedTuple):
    """What ranks measured, and what went by between its events: by rank, iteration and what ``names`` name."""

    names: Sequence[str]
    seconds: Array
    elapsed: Array


def _iterations(times: RankTimes) -> Stretches:
    return Stretches(("an iteration",), times.seconds[:, :, None], times.elapsed[:, :, None])


def _phases(times: RankTimes) -> Stretches:
    return Stretches([f"{phase} with its wait" for phase in times.phases], times.own + times.wait, times.since)


def findings(events: Events, manifest: Manifest, record: Record) -> tuple[Finding, ...]:
    """Everything that does not fit, by its kinds. ``record``: as derived from these events."""
    times, slacks = events.times, _slacks(manifest, record.noise)
    first = sum(rank < manifest.layout.training_ranks for rank in times.ranks)
    # ranks that meet at barriers: all, or each side of a split run
    sides = [side for side in (times.of(slice(first)), times.of(slice(first, None))) if side.ranks]
    engines = sides if manifest.backend.kind == "engine" else ()
    return (
        *one_of("event-times", _event_times(times, manifest, slacks)),
        *one_of("phase-times", _phase_times(times, manifest, slacks) if engines and times.phases else ()),
        *one_of("phase-sums", _phase_sums(times)),
        *one_of("rank-times", (text for side in sides for text in _apart(side.ranks, _iterations(side), slacks))),
        *one_of("rank-waits", (text for side in engines for text in _apart(side.ranks, _phases(side), slacks))),
        *one_of("copied-rank", (text for side in sides for text in _copied_ranks(side))),
        *one_of("run-times", _run_times(events, times)),
        *memory_findings(events, manifest, record),
        *one_of("work-counts", [note for note in record.notes if note.startswith(NO_WORK)]),
        *period_findings(events, manifest),
        *fact_findings(events, manifest, record),
    )


def _event_times(times: RankTimes, manifest: Manifest, slacks: Slacks) -> Iterator[str]:
    """Iterations against the times of their events: never longer than what went by, and seldom much shorter."""
    found = _iterations(times)
    within = np.where(times.by_trainer[:, :, None], _READ_LATE.of(found.seconds), _WITHIN.of(found.seconds))
    later = found.elapsed.copy()
    later[:, :1] = np.nan  # of the first, the set-up is in
    wrong = found.seconds - found.elapsed > within
    if _is_close(manifest):
        wrong |= later - found.seconds > slacks.between_once.of(found.seconds)
    yield from _apart_from_events(times, found, wrong, later, _mostly_beyond(later, found.seconds, slacks.between))


def _phase_times(times: RankTimes, manifest: Manifest, slacks: Slacks) -> Iterator[str]:
    """Phases of an engine against the times of their events; a trainer's come in pieces."""
    found = _phases(times)
    later = found.elapsed.copy()
    for place, phase in enumerate(times.first[:, :1]):  # the first of all follows the set-up
        later[place, :1, phase] = np.nan
    is_first = (times.first[:, :, None] == np.arange(len(times.phases))).any(axis=1)
    between, beside = (_mostly_beyond(later, found.seconds, slack) for slack in (slacks.between, slacks.beside_phase))
    # samples change hands, or sides wait
    may_be_late = manifest.layout.balance or manifest.layout.placement == "split"
    beyond = np.where(is_first, between, beside) & (not may_be_late)
    wrong = found.seconds - found.elapsed > _WITHIN.of(found.seconds)
    yield from _apart_from_events(times, found, wrong, later, beyond)


def _apart_from_events(times: RankTimes, found: Stretches, wrong: _Mask, later: Array, beyond: _Mask) -> Iterator[str]:
    """Each stretch that is ``wrong``, and all iterations of a rank where they are ``beyond`` what may be ``later``."""
    words = "{} took {:.6g} s, and {:.6g} s went by between its events, in {} of {}"
    for rank, index, name in np.argwhere(wrong):
        at, who = (rank, index, name), rank_name(times.ranks[rank])
        yield words.format(found.names[name], found.seconds[at], found.elapsed[at], f"iteration {index}", who)
    for rank, name in np.argwhere(beyond):
        known = np.isfinite(later[rank, :, name] - found.seconds[rank, :, name])
        both = (math.fsum(each[rank, known, name]) for each in (found.seconds, later))
        yield words.format(found.names[name], *both, f"all {known.sum()} iterations", rank_name(times.ranks[rank]))


def _phase_sums(times: RankTimes) -> Iterator[str]:
    """What one clock saw of an iteration's phases, with the waits between them, is no longer than the iteration."""
    totals = np.nansum(times.own + times.wait, axis=2)
    for at in map(tuple, np.argwhere(totals > times.seconds + _SUM.of(times.seconds))):
        where = f"iteration {at[1]} of {rank_name(times.ranks[at[0]])}"
        yield f"the phases of {where} took {totals[at]:.6g} s with their waits, the iteration {times.seconds[at]:.6g} s"


def _apart(ranks: Sequence[int], found: Stretches, slacks: Slacks) -> Iterator[str]:
    """What is to be said of two ranks whose times between the same barriers differ: the first against every other.

    An iteration lasts from barrier to barrier, on every rank the same; an engine's phase does with its wait.
    """
    if len(ranks) < 2 or not found.seconds.size:
        return
    here, there = found.seconds[:1], found.seconds[1:]
    shorter, gaps = np.minimum(here, there), np.abs(here - there)
    # A rank that left a barrier late wrote its event as late.
    unseen = np.maximum(gaps - np.nan_to_num(np.abs(found.elapsed[:1] - found.elapsed[1:])), 0.0)
    once = ((gaps > slacks.late_once.of(shorter)) | (unseen > slacks.unseen_once.of(shorter))).any(axis=1)
    mostly = _mostly_beyond(here, there, slacks.together, _FEWEST_BARRIERS)
    mostly |= _mostly_beyond(there, here, slacks.together, _FEWEST_BARRIERS)
    mostly |= _mostly_beyond(shorter + unseen, shorter, slacks.together)
    for place, name in np.argwhere(once | mostly):
        worst = np.nanargmax(gaps[place, :, name])
        yield (
            f"{found.names[name]} took {here[0, worst, name]:.6g} s on rank {ranks[0]} and "
            f"{there[place, worst, name]:.6g} s on rank {ranks[place + 1]}, between the same barriers"
        )


def _copied_ranks(side: RankTimes) -> Iterator[str]:
    """No two ranks spend the same time in every phase; phases that never vary prove nothing."""
    seen: dict[bytes, int] = {}
    own = np.round(side.own, _COPY_DIGITS)
    for place, rank in enumerate(side.ranks):
        known = ~np.isnan(own[place])
        varies = (known & (own[place] != own[place, :1])).any()
        if not varies or side.by_trainer[place][~np.isnan(side.seconds[place])].all():
            continue
        first = seen.setdefault(own[place].tobytes(), rank)
        if first != rank:
            yield f"rank {rank} spent as much time as rank {first} in each of {known.sum()} phases"


def _run_times(events: Events, times: RankTimes) -> Iterator[str]:
    """Ranks of this machine start and end while their driver waits for them, by one clock."""
    launch, end = events.of_driver(Launch), events.of_driver(DriverEnd)
    if launch is None or end is None or launch.launcher != "local":
        return
    waited, claimed = end.time - launch.time, end.elapsed_seconds
    if claimed - waited > _DRIVER.of(waited):
        yield f"the driver ran for {waited:.6g} s by its events and for {claimed:.6g} s as it tells"
    for place, (rank, written) in enumerate(events.ranks.items()):
        for event in (*written[:1], *written[-1:]):
            early, late = launch.time - event.time, event.time - end.time
            if max(early, late) > _DRIVER.seconds:
                when = f"{early:.6g} s before its launch" if early > late else f"{late:.6g} s after the run's end"
                yield f"the {kind_of(event)} event of {rank_name(rank)} is of {when}"
        total = np.nansum(times.seconds[place])
        if total > claimed + _DRIVER.of(claimed):
            yield f"the iterations of {rank_name(rank)} took {total:.6g} s, the whole run {claimed:.6g} s"


def _mostly_beyond(longer: Array, shorter: Array, slack: Slack, fewest: int = _FEWEST) -> _Mask:
    """Whether in three of four iterations the difference is beyond what the shorter allows; never of few.

    Of arrays whose second axis is the iteration, which the result is without.
    """
    beyond = longer - shorter - slack.of(shorter)
    known = np.isfinite(beyond).sum(axis=1)
    return (known >= fewest) & ((beyond > 0).sum(axis=1) >= known - known // 4)
