"""Whether what a bundle's ranks tell fits together: clocks, barriers, copies and memory (docs/evidence.md).

Every tolerance has a part that grows with what is compared. Where something must hold in each iteration it is tight, as
an honest run cannot break it; where a busy machine may be late, it is asked of three iterations in four.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from suite.bundle.events import Event, Events, rank_name
from suite.bundle.findings import Finding, Within
from suite.bundle.memory_checks import memory_findings
from suite.bundle.noise_model import Noise
from suite.bundle.record import Record
from suite.bundle.told import ToldIteration, ToldPhase, told_by
from suite.bundle.validity import LOST_SHARE, OTHERS_CPUS
from suite.spec.manifest import Manifest

_Told = dict[int, list[ToldIteration]]


@dataclass(frozen=True)
class Slack:
    """How much may be missing: ``seconds`` and a ``share`` of what it is held against."""

    seconds: float
    share: float

    def of(self, value: float) -> float:
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
_COPY_DIGITS = 6


@dataclass(frozen=True)
class Slacks:
    """What a machine may add to measured stretches."""

    #: Between two iterations an engine counts, writes its event and meets the others.
    between: Slack
    #: No single iteration is as late as this by being interrupted.
    between_once: Slack
    #: Between the phases of an engine there is nothing to do.
    beside_phase: Slack
    #: Ranks leave a barrier together; one or the other is put on its CPU late.
    together: Slack
    together_once: Slack


_ALONE = Slacks(Slack(0.005, 0.05), Slack(0.25, 0.5), Slack(0.003, 0.05), Slack(0.01, 0.05), Slack(0.25, 0.2))
#: Several ranks wait for each other.
_SEVERAL = replace(_ALONE, between=Slack(0.01, 0.05))
#: Others had CPUs of the run, which is suspect for that and in no ranking: half of its time can still not be missing.
_CROWDED = Slacks(Slack(0.01, 0.6), Slack(1.0, 2.0), Slack(0.01, 0.6), Slack(0.01, 0.6), Slack(1.0, 2.0))


def _slacks(manifest: Manifest, noise: Noise | None) -> Slacks:
    usual = _ALONE if manifest.layout.ranks == 1 else _SEVERAL
    if noise is not None:
        others, stolen = noise.others_cpus, noise.steal_share
        if (others is not None and others.worst > OTHERS_CPUS) or (stolen is not None and stolen.worst > LOST_SHARE):
            usual = _CROWDED
    return usual if manifest.backend.kind == "engine" else replace(usual, between=_BETWEEN_OF_TRAINER)


def findings(events: Events, manifest: Manifest, record: Record) -> tuple[Finding, ...]:
    """Everything that does not fit, worst value first of each kind; nothing for a run that nobody changed.

    ``record``: as derived from these events.
    """
    told = {rank: told_by(written) for rank, written in sorted(events.ranks.items())}
    sides = _sides(told, manifest)
    slacks = _slacks(manifest, record.noise)
    return (
        *_event_times(told, manifest, slacks),
        *_phase_times(told, manifest, slacks),
        *_phase_sums(told),
        *(found for side in sides for found in _rank_times(side, slacks)),
        *(found for side in sides for found in _rank_waits(side, manifest, slacks)),
        *(found for side in sides for found in _copied_ranks(side)),
        *_run_times(events, told),
        *memory_findings(events, manifest, record),
        *_work_counts(record),
    )


def _sides(told: _Told, manifest: Manifest) -> list[_Told]:
    """Ranks that meet at barriers: all, or each side of a split run."""
    training = manifest.layout.training_ranks
    sides = [{rank: rows for rank, rows in told.items() if (rank < training) == first} for first in (True, False)]
    return [side for side in sides if side]


def _event_times(told: _Told, manifest: Manifest, slacks: Slacks) -> Iterator[Finding]:
    """Iterations against the times of their events: never longer than what went by, and seldom much shorter."""
    timed = [(rank, each, each.elapsed) for rank, rows in told.items() for each in rows if each.elapsed is not None]
    too_long = [
        (each.seconds - elapsed, f"iteration {each.number} of {rank_name(rank)}", each.seconds, elapsed)
        for rank, each, elapsed in timed
        if each.seconds - elapsed > (_READ_LATE if each.by_trainer else _WITHIN).of(each.seconds)
    ]
    yield from _worst("event-times", too_long, "took {:.6g} s, but {:.6g} s went by between its event and the last")
    too_short = []
    for rank in told:
        pairs = [(elapsed, each.seconds) for at, each, elapsed in timed if at == rank and each.number]
        if _mostly_beyond(pairs, slacks.between):
            too_short.append(_sums(f"the iterations of {rank_name(rank)} after the first", pairs))
    if manifest.backend.kind == "engine":
        too_short += [
            (elapsed - each.seconds, f"iteration {each.number} of {rank_name(rank)}", each.seconds, elapsed)
            for rank, each, elapsed in timed
            if each.number and elapsed - each.seconds > slacks.between_once.of(each.seconds)
        ]
    yield from _worst("event-times", too_short, "took {:.6g} s, but {:.6g} s went by until the event at the end")


def _phase_times(told: _Told, manifest: Manifest, slacks: Slacks) -> Iterator[Finding]:
    """Phases of an engine against the times of their events; a trainer's come in pieces."""
    if manifest.backend.kind != "engine":
        return
    too_long, too_short = [], []
    for rank, rows in told.items():
        by_phase: dict[str, list[tuple[float, float]]] = {}
        for each, phase, elapsed in _timed_phases(rows):
            if phase.seconds - elapsed > _WITHIN.of(phase.seconds):
                where = f"{phase.name} of iteration {each.number} of {rank_name(rank)}"
                too_long.append((phase.seconds - elapsed, where, phase.seconds, elapsed))
            if each.number or phase is not each.phases[0]:  # the first of all follows the set-up
                by_phase.setdefault(phase.name, []).append((elapsed, phase.seconds))
        first = {each.phases[0].name for each in rows if each.phases}
        for name, pairs in by_phase.items():
            if _mostly_beyond(pairs, slacks.between if name in first else slacks.beside_phase):
                too_short.append(_sums(f"{name} of {rank_name(rank)}", pairs))
    yield from _worst("phase-times", too_long, "took {:.6g} s with its wait, but {:.6g} s went by until its event")
    if not _works_between_phases(manifest):
        yield from _worst("phase-times", too_short, "took {:.6g} s in all, but {:.6g} s went by until its events")


def _works_between_phases(manifest: Manifest) -> bool:
    """Where samples change hands, or the sides of a split run wait for each other."""
    return manifest.layout.balance or manifest.layout.placement == "split"


def _timed_phases(rows: Sequence[ToldIteration]) -> Iterator[tuple[ToldIteration, ToldPhase, float]]:
    for each in rows:
        for phase in each.phases:
            if phase.elapsed is not None:
                yield each, phase, phase.elapsed


def _phase_sums(told: _Told) -> Iterator[Finding]:
    """What one clock saw of an iteration's phases, with the waits between them, is no longer than the iteration."""
    beyond = [
        (total - each.seconds, f"the phases of iteration {each.number} of {rank_name(rank)}", total, each.seconds)
        for rank, rows in told.items()
        for each in rows
        if (total := math.fsum(phase.seconds for phase in each.phases)) > each.seconds + _SUM.of(each.seconds)
    ]
    yield from _worst("phase-sums", beyond, "took {:.6g} s with their waits, the iteration {:.6g} s")


def _rank_times(side: _Told, slacks: Slacks) -> Iterator[Finding]:
    """An iteration lasts from barrier to barrier, on every rank the same."""
    texts: list[str] = []
    for one, other in _pairs(side):
        pairs = [(left.seconds, right.seconds) for left, right in zip(side[one], side[other], strict=False)]
        texts += _apart(pairs, "an iteration", one, other, slacks)
    yield from _one_of("rank-times", texts)


def _rank_waits(side: _Told, manifest: Manifest, slacks: Slacks) -> Iterator[Finding]:
    """A phase of an engine, with the wait behind it, lasts from barrier to barrier too."""
    if manifest.backend.kind != "engine":
        return
    texts: list[str] = []
    for one, other in _pairs(side):
        by_phase: dict[str, list[tuple[float, float]]] = {}
        for left, right in zip(side[one], side[other], strict=False):
            for here, there in zip(left.phases, right.phases, strict=False):
                if here.name == there.name:
                    by_phase.setdefault(here.name, []).append((here.seconds, there.seconds))
        for name, pairs in by_phase.items():
            texts += _apart(pairs, f"{name} with its wait", one, other, slacks)
    yield from _one_of("rank-waits", texts)


def _pairs(side: _Told) -> list[tuple[int, int]]:
    """The first rank against every other."""
    first, *others = side
    return [(first, other) for other in others]


def _apart(pairs: Sequence[tuple[float, float]], what: str, one: int, other: int, slacks: Slacks) -> Iterator[str]:
    """What is to be said of two ranks whose times between the same barriers differ."""
    apart = [abs(here - there) for here, there in pairs]
    once = any(gap > slacks.together_once.of(min(pair)) for gap, pair in zip(apart, pairs, strict=True))
    mostly = (_mostly_beyond(turned, slacks.together) for turned in (pairs, [pair[::-1] for pair in pairs]))
    if once or any(mostly):
        here, there = pairs[apart.index(max(apart))]
        yield f"{what} took {here:.6g} s on rank {one} and {there:.6g} s on rank {other}, between the same barriers"


def _copied_ranks(side: _Told) -> Iterator[Finding]:
    """No two ranks spend the same time in every phase; phases that never vary prove nothing."""
    seen: dict[tuple[float, ...], int] = {}
    texts: list[str] = []
    for rank, rows in side.items() if len(side) > 1 else ():
        if not _varies(rows) or all(each.by_trainer for each in rows):
            continue
        key = tuple(round(phase.own_seconds, _COPY_DIGITS) for each in rows for phase in each.phases)
        first = seen.setdefault(key, rank)
        if first != rank:
            texts.append(f"rank {rank} spent as much time as rank {first} in each of {len(key)} phases")
    yield from _one_of("copied-rank", texts)


def _varies(rows: Sequence[ToldIteration]) -> bool:
    by_phase: dict[str, set[float]] = {}
    for each in rows:
        for phase in each.phases:
            by_phase.setdefault(phase.name, set()).add(round(phase.own_seconds, _COPY_DIGITS))
    return any(len(values) > 1 for values in by_phase.values())


def _run_times(events: Events, told: _Told) -> Iterator[Finding]:
    """Ranks of this machine start and end while their driver waits for them, by one clock."""
    launch, end = (next((each for each in events.driver if each["kind"] == kind), None) for kind in ("launch", "end"))
    if launch is None or end is None or launch["launcher"] != "local":
        return
    waited, claimed = end["time"] - launch["time"], end["elapsed_seconds"]
    texts: list[str] = []
    if claimed - waited > _DRIVER.of(waited):
        texts.append(f"the driver ran for {waited:.6g} s by its events and for {claimed:.6g} s as it tells")
    for rank, written in events.ranks.items():
        texts += _outside(rank, written, launch["time"], end["time"])
        total = math.fsum(each.seconds for each in told[rank])
        if total > claimed + _DRIVER.of(claimed):
            texts.append(f"the iterations of {rank_name(rank)} took {total:.6g} s, the whole run {claimed:.6g} s")
    yield from _one_of("run-times", texts)


def _outside(rank: int, written: Sequence[Event], launched: float, ended: float) -> Iterator[str]:
    for event in (*written[:1], *written[-1:]):
        early, late = launched - event["time"], event["time"] - ended
        if max(early, late) > _DRIVER.seconds:
            when = f"{early:.6g} s before its launch" if early > late else f"{late:.6g} s after the run's end"
            yield f"the {event['kind']} event of {rank_name(rank)} is of {when}"


def _work_counts(record: Record) -> Iterator[Finding]:
    """Counts that no rate can be of: of other work than was asked for, or another on each rank."""
    if record.counts is None and record.iterations.seconds:
        note = next((note for note in record.notes if note.startswith("no rate without its work")), "no counts")
        yield Finding(name="work-counts", text=note)


def _mostly_beyond(pairs: Iterable[tuple[float, float]], slack: Slack) -> bool:
    """Whether in three of four (longer, shorter) the difference is beyond what the shorter allows; never of few."""
    seconds, share = slack.seconds, slack.share
    beyond = sorted([longer - shorter - (seconds + share * shorter) for longer, shorter in pairs])
    return len(beyond) >= _FEWEST and beyond[len(beyond) // 4] > 0


_Wrong = tuple[float, str, float, float]


def _worst(name: Within, found: Sequence[_Wrong], words: str) -> Iterator[Finding]:
    """One finding for all of a kind: the largest, and how many more."""
    if found:
        _, what, claimed, elapsed = max(found, key=lambda wrong: wrong[0])
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        yield Finding(name=name, text=f"{what} {words.format(claimed, elapsed)}{more}")


def _sums(what: str, pairs: Sequence[tuple[float, float]]) -> _Wrong:
    elapsed, claimed = (math.fsum(values) for values in zip(*pairs, strict=True))
    return elapsed - claimed, what, claimed, elapsed


def _one_of(name: Within, texts: Sequence[str]) -> Iterator[Finding]:
    """One finding for all of a kind: the first, and how many more."""
    if texts:
        more = f", and {len(texts) - 1} more" if len(texts) > 1 else ""
        yield Finding(name=name, text=f"{texts[0]}{more}")
