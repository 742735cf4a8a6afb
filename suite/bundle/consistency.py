"""Whether what a bundle reports fits together: clocks, barriers, copies, memory and facts (docs/evidence.md).

Every tolerance has a part that grows with what is compared. Where something must hold in each iteration it is tight, as
an honest run cannot break it; where a busy machine may be late, it is asked of three iterations in four.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from suite.bundle.event_fields import DriverEnd, Launch, kind_of
from suite.bundle.events import Events, rank_name
from suite.bundle.facts import fact_findings, memory_findings
from suite.bundle.findings import Finding, Within, one_of
from suite.bundle.parts import Noise
from suite.bundle.record import NO_WORK, Record
from suite.bundle.sides import period_findings
from suite.bundle.timeline import Array, RankTimes
from suite.bundle.validity import LOST_SHARE, OTHERS_CPUS
from suite.spec.manifest import Manifest

_Mask = NDArray[np.bool_]
#: By how much, what, and the two times that do not fit.
_Wrong = tuple[float, str, float, float]
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
    together_unseen: Slack = Slack(0.01, 0.05)
    together_once: Slack = Slack(0.25, 0.2)


#: Several ranks wait for each other.
_SEVERAL = Slacks(between=Slack(0.01, 0.05))
#: Others had CPUs of the run, which is suspect for that and in no ranking: half of its time can still not be missing.
_OFTEN, _ONCE = Slack(0.01, 0.6), Slack(1.0, 2.0)
#: A rank is put on its CPU after several others have had their slices, of some milliseconds each.
_CROWDED = Slacks(_OFTEN, _ONCE, _OFTEN, replace(_OFTEN, seconds=0.02), _ONCE, _OFTEN, _ONCE)


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


def findings(events: Events, manifest: Manifest, record: Record) -> tuple[Finding, ...]:
    """Everything that does not fit, the worst first of each kind. ``record``: as derived from these events."""
    times, slacks = events.times, _slacks(manifest, record.noise)
    first = sum(rank < manifest.layout.training_ranks for rank in times.ranks)
    # ranks that meet at barriers: all, or each side of a split run
    sides = [side for side in (times.of(slice(first)), times.of(slice(first, None))) if side.ranks]
    return (
        *_event_times(times, manifest, slacks),
        *_phase_times(times, manifest, slacks),
        *_phase_sums(times),
        *_rank_times(sides, manifest, slacks),
        *(found for side in sides for found in _copied_ranks(side)),
        *_run_times(events, times),
        *memory_findings(events, manifest, record),
        *one_of("work-counts", [note for note in record.notes if note.startswith(NO_WORK)]),
        *period_findings(events, manifest),
        *fact_findings(events, manifest, record),
    )


def _event_times(times: RankTimes, manifest: Manifest, slacks: Slacks) -> Iterator[Finding]:
    """Iterations against the times of their events: never longer than what went by, and seldom much shorter."""
    seconds, elapsed = times.seconds, times.elapsed
    within = np.where(times.by_trainer, _READ_LATE.of(seconds), _WITHIN.of(seconds))
    too_long = _each(times, seconds - elapsed > within, seconds, elapsed)
    yield from _worst("event-times", too_long, "{} took {:.6g} s, but {:.6g} s went by between its event and the last")
    later = elapsed.copy()
    later[:, :1] = np.nan  # of the first, the set-up is in
    beyond = _mostly_beyond(later, seconds, slacks.between)
    too_short = _sums(times, beyond, later, seconds)
    if _is_close(manifest):
        too_short += _each(times, later - seconds > slacks.between_once.of(seconds), seconds, later)
    yield from _worst("event-times", too_short, "{} took {:.6g} s, but {:.6g} s went by until the event at the end")


def _each(times: RankTimes, wrong: _Mask, claimed: Array, elapsed: Array) -> list[_Wrong]:
    """Of every iteration of a rank, or phase of one, that is wrong."""
    found = []
    for at in map(tuple, np.argwhere(wrong)):
        phase = "".join(f"{times.phases[place]} of " for place in at[2:])
        what = f"{phase}iteration {at[1]} of {rank_name(times.ranks[at[0]])}"
        found.append((abs(claimed[at] - elapsed[at]), what, claimed[at], elapsed[at]))
    return found


def _sums(times: RankTimes, beyond: _Mask, longer: Array, shorter: Array) -> list[_Wrong]:
    """Of all iterations of every rank, or of a phase in all of them, that is beyond."""
    found = []
    for at in map(tuple, np.argwhere(beyond)):
        rank = rank_name(times.ranks[at[0]])
        what = f"{times.phases[at[1]]} of {rank}" if at[1:] else f"the iterations of {rank} after the first"
        here, there = (np.moveaxis(each, 1, -1)[at] for each in (longer, shorter))
        both = ~np.isnan(here) & ~np.isnan(there)
        elapsed, claimed = math.fsum(here[both]), math.fsum(there[both])
        found.append((elapsed - claimed, what, claimed, elapsed))
    return found


def _phase_times(times: RankTimes, manifest: Manifest, slacks: Slacks) -> Iterator[Finding]:
    """Phases of an engine against the times of their events; a trainer's come in pieces."""
    if manifest.backend.kind != "engine" or not times.own.size:
        return
    seconds, since = times.own + times.wait, times.since
    too_long = _each(times, seconds - since > _WITHIN.of(seconds), seconds, since)
    yield from _worst("phase-times", too_long, "{} took {:.6g} s with its wait, but {:.6g} s went by until its event")
    if manifest.layout.balance or manifest.layout.placement == "split":  # samples change hands, or sides wait
        return
    later = since.copy()
    for place, phase in enumerate(times.first[:, 0]):  # the first of all follows the set-up
        later[place, 0, phase] = np.nan
    is_first = (times.first[:, :, None] == np.arange(len(times.phases))).any(axis=1)
    between, beside = (_mostly_beyond(later, seconds, slack) for slack in (slacks.between, slacks.beside_phase))
    too_short = _sums(times, np.where(is_first, between, beside), later, seconds)
    yield from _worst("phase-times", too_short, "{} took {:.6g} s in all, but {:.6g} s went by until its events")


def _phase_sums(times: RankTimes) -> Iterator[Finding]:
    """What one clock saw of an iteration's phases, with the waits between them, is no longer than the iteration."""
    totals = np.nansum(times.own + times.wait, axis=2)
    beyond = _each(times, totals > times.seconds + _SUM.of(times.seconds), totals, times.seconds)
    words = "the phases of {} took {:.6g} s with their waits, the iteration {:.6g} s"
    yield from _worst("phase-sums", beyond, words)


def _rank_times(sides: Sequence[RankTimes], manifest: Manifest, slacks: Slacks) -> Iterator[Finding]:
    """An iteration lasts from barrier to barrier, on every rank the same; an engine's phase does with its wait."""
    for side in sides:
        seconds, elapsed = side.seconds[:, :, None], side.elapsed[:, :, None]
        yield from one_of("rank-times", _apart(side, seconds, elapsed, ("an iteration",), slacks))
    for side in sides if manifest.backend.kind == "engine" else ():
        names = [f"{phase} with its wait" for phase in side.phases]
        yield from one_of("rank-waits", _apart(side, side.own + side.wait, side.since, names, slacks))


def _apart(side: RankTimes, seconds: Array, elapsed: Array, names: Sequence[str], slacks: Slacks) -> list[str]:
    """What is to be said of two ranks whose times between the same barriers differ: the first against every other.

    ``seconds``, and what ``elapsed`` by events: by rank, iteration and what ``names`` name.
    """
    if len(seconds) < 2 or not seconds.size:
        return []
    here, there = seconds[:1], seconds[1:]
    shorter, gaps = np.minimum(here, there), np.abs(here - there)
    # A rank that left a barrier late wrote its event as late.
    unseen = np.maximum(gaps - np.nan_to_num(np.abs(elapsed[:1] - elapsed[1:])), 0.0)
    once = ((gaps > slacks.late_once.of(shorter)) | (unseen > slacks.together_once.of(shorter))).any(axis=1)
    mostly = _mostly_beyond(here, there, slacks.together, _FEWEST_BARRIERS)
    mostly |= _mostly_beyond(there, here, slacks.together, _FEWEST_BARRIERS)
    mostly |= _mostly_beyond(shorter + unseen, shorter, slacks.together_unseen)
    texts = []
    for place, name in np.argwhere(once | mostly):
        worst = np.nanargmax(gaps[place, :, name])
        texts.append(
            f"{names[name]} took {here[0, worst, name]:.6g} s on rank {side.ranks[0]} and "
            f"{there[place, worst, name]:.6g} s on rank {side.ranks[place + 1]}, between the same barriers"
        )
    return texts


def _copied_ranks(side: RankTimes) -> Iterator[Finding]:
    """No two ranks spend the same time in every phase; phases that never vary prove nothing."""
    seen: dict[bytes, int] = {}
    texts: list[str] = []
    own = np.round(side.own, _COPY_DIGITS)
    for place, rank in enumerate(side.ranks) if len(side.ranks) > 1 else ():
        known = ~np.isnan(own[place])
        varies = (known & (own[place] != own[place, :1])).any()
        if not varies or side.by_trainer[place][~np.isnan(side.seconds[place])].all():
            continue
        first = seen.setdefault(own[place].tobytes(), rank)
        if first != rank:
            texts.append(f"rank {rank} spent as much time as rank {first} in each of {known.sum()} phases")
    yield from one_of("copied-rank", texts)


def _run_times(events: Events, times: RankTimes) -> Iterator[Finding]:
    """Ranks of this machine start and end while their driver waits for them, by one clock."""
    launch, end = events.of_driver(Launch), events.of_driver(DriverEnd)
    if launch is None or end is None or launch.launcher != "local":
        return
    waited, claimed = end.time - launch.time, end.elapsed_seconds
    texts: list[str] = []
    if claimed - waited > _DRIVER.of(waited):
        texts.append(f"the driver ran for {waited:.6g} s by its events and for {claimed:.6g} s as it tells")
    for place, (rank, written) in enumerate(events.ranks.items()):
        for event in (*written[:1], *written[-1:]):
            early, late = launch.time - event.time, event.time - end.time
            if max(early, late) > _DRIVER.seconds:
                when = f"{early:.6g} s before its launch" if early > late else f"{late:.6g} s after the run's end"
                texts.append(f"the {kind_of(event)} event of {rank_name(rank)} is of {when}")
        total = np.nansum(times.seconds[place])
        if total > claimed + _DRIVER.of(claimed):
            texts.append(f"the iterations of {rank_name(rank)} took {total:.6g} s, the whole run {claimed:.6g} s")
    yield from one_of("run-times", texts)


def _mostly_beyond(longer: Array, shorter: Array, slack: Slack, fewest: int = _FEWEST) -> _Mask:
    """Whether in three of four iterations the difference is beyond what the shorter allows; never of few.

    Of arrays whose second axis is the iteration, which the result is without.
    """
    if not longer.shape[1]:
        return np.zeros((*longer.shape[:1], *longer.shape[2:]), np.bool_)
    beyond = np.sort(longer - shorter - slack.of(shorter), axis=1)  # NaN comes last
    count = np.isfinite(beyond).sum(axis=1, keepdims=True)
    at: Array = np.take_along_axis(beyond, count // 4, axis=1)
    return ((count >= fewest) & (at > 0)).squeeze(axis=1)


def _worst(name: Within, found: Sequence[_Wrong], words: str) -> Iterator[Finding]:
    """One finding for all of a kind: the largest, and how many more."""
    yield from one_of(name, [words.format(*wrong[1:]) for wrong in sorted(found, key=lambda wrong: -wrong[0])])
