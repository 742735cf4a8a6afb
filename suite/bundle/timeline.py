"""The iterations of a run over all its ranks: the slowest rank sets the time.

The times of ranks are arrays of rank x iteration x phase, of which figures are reductions. Where a rank reported
nothing an array holds NaN, which is no longer and no shorter than anything.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from suite.bundle.event_fields import TRAINER, Environment, Iteration, Memory, Phase, Turn
from suite.bundle.events import Events
from suite.bundle.facts import derivation
from suite.bundle.files import DamagedBundle
from suite.bundle.record import Counts
from suite.spec.manifest import Manifest
from suite.spec.phases import TIMED_NAMES

Array = NDArray[np.float64]
#: Ranks leave a barrier at slightly different moments, so phases may add up to a little more than their iteration.
_OVERLAP_SHARE, _OVERLAP_SECONDS = 0.01, 0.001


@dataclass(frozen=True)
class RankTimes:
    """The iterations that each rank completed, and their phases, in the order in which they came.

    ``seconds`` of iterations and what ``elapsed`` by the times of events: from that of the iteration before, of the
    set-up, or of its turn, to its own. ``by_trainer``: its seconds are those of the trainer's own log, of which every
    rank tells the same. Of phases the rank's ``own`` seconds, its ``wait`` until every rank was there, and the time
    ``since`` the event before its own. ``first``: the place of each iteration's first phase, -1 without any.
    """

    ranks: tuple[int, ...]
    phases: tuple[str, ...]
    seconds: Array
    elapsed: Array
    by_trainer: NDArray[np.bool_]
    own: Array
    wait: Array
    since: Array
    first: NDArray[np.int64]

    def of(self, ranks: slice) -> "RankTimes":
        """Some of the ranks, by their places."""
        return replace(self, **{name: value[ranks] for name, value in vars(self).items() if name != "phases"})


def times_of(events: Events) -> RankTimes:
    """Of checked events: iterations are numbered from 0 without a gap, and have each phase at most once."""
    phases = {name: place for place, name in enumerate(dict.fromkeys(event.phase for event in events.of_all(Phase)))}
    most = max((len(events.of(rank, Iteration)) for rank in events.ranks), default=0)
    flat, cube = (len(events.ranks), most), (len(events.ranks), most + 1, len(phases))  # one more was not completed
    seconds, elapsed = np.full(flat, np.nan), np.full(flat, np.nan)
    by_trainer, first = np.zeros(flat, np.bool_), np.full(flat, -1)
    own, wait, since = np.full(cube, np.nan), np.full(cube, np.nan), np.full(cube, np.nan)
    for row, written in enumerate(events.ranks.values()):
        before, began, place, done = math.nan, math.nan, -1, 0
        for event in written:
            if isinstance(event, Phase):
                at = row, done, phases[event.phase]
                own[at], wait[at], since[at] = event.seconds, event.wait_seconds, event.time - before
                place = at[2] if place < 0 else place
            elif isinstance(event, Iteration):
                seconds[row, done], elapsed[row, done] = event.seconds, event.time - began
                by_trainer[row, done], first[row, done] = event.source == TRAINER, place
                done, place, began = done + 1, -1, event.time
            elif isinstance(event, Turn):  # others worked until now
                began = event.time
            elif type(event) is Memory or type(event) is Environment:
                began = event.time if done == 0 and place < 0 else began
            else:
                continue
            before = event.time
        own[row, done] = wait[row, done] = since[row, done] = np.nan
    cells = own[:, :most], wait[:, :most], since[:, :most]
    return RankTimes(tuple(events.ranks), tuple(phases), seconds, elapsed, by_trainer, *cells, first)


@dataclass(frozen=True)
class Timeline:
    """What all ranks completed, and what that is known from.

    ``events`` are of all ranks, ``training`` of those that train: of a split run without those that only generate,
    whose events are ``generating``. ``rules``: the derivation. ``seconds[i]`` is iteration i, slowest rank, as is
    ``phase_seconds[phase][i]`` of its phases; one that no rank ever reports is missing. ``window`` are the indices
    after the warm-up, ``counted`` those of them that are not void. ``skipped_steps``: optimizer steps that were skipped
    in each void iteration, by its index; null where no rank tells any. ``turns``: the iterations that began one.
    """

    manifest: Manifest
    events: Events
    training: Events
    generating: Events
    rules: int
    seconds: tuple[float, ...]
    phase_seconds: dict[str, tuple[float, ...]]
    counts: Counts | None
    counts_problem: str | None
    window: range
    counted: Sequence[int]
    skipped_steps: dict[int, int] | None
    turns: tuple[int, ...]

    @property
    def void(self) -> tuple[int, ...] | None:
        """Iterations after the warm-up that do not count; null where nothing tells of any."""
        if self.skipped_steps is None and len(self.counted) == len(self.window):
            return None
        return tuple(sorted(set(self.window).difference(self.counted)))

    @property
    def counted_seconds(self) -> tuple[float, ...]:
        return tuple(self.seconds[index] for index in self.counted)

    def counted_events(self, events: Events | None = None) -> Iterator[Iteration]:
        """The counted iterations of every rank, or of those of these ``events``."""
        counted = frozenset(self.counted)
        return (event for event in (events or self.events).of_all(Iteration) if event.iteration in counted)

    def other_seconds(self, iteration: int) -> float:
        """What the iteration took beyond its phases. Raises DamagedBundle where the phases are longer than it."""
        total = self.seconds[iteration]
        other = total - math.fsum(seconds[iteration] for seconds in self.phase_seconds.values())
        if other < -(_OVERLAP_SHARE * total + _OVERLAP_SECONDS):
            raise DamagedBundle(f"the phases of iteration {iteration} take {total - other:.6g} of its {total:.6g} s")
        return max(0.0, other)


def make_timeline(events: Events, manifest: Manifest) -> Timeline:
    """Line the ranks up. An iteration counts as completed when every rank that trains completed it.

    An iteration in which a rank skipped an optimizer step (an overflow in fp16) did less than the others: it is void,
    and so is the first of a turn of several, which finds caches as others left them.
    Raises DamagedBundle when a phase is reported by some ranks or in some iterations only.
    """
    world, rules = manifest.layout.training_ranks, derivation(events)
    training, generating = _side(events, range(world)), _side(events, range(world, manifest.layout.ranks))
    by_rank = [training.of(rank, Iteration) for rank in range(world)]
    completed = min(map(len, by_rank))
    seconds = tuple(training.times.seconds[:, :completed].max(axis=0).tolist()) if completed else ()
    window = range(min(manifest.measure.warmup, completed), completed)
    skipped = _skipped_steps(by_rank, window) if rules >= 2 else None
    begins = dict.fromkeys(turn.iteration for turn in training.of(0, Turn) if turn.iteration < completed)
    # the first of a turn of several; the last turn may have been cut short
    cold = {first for first in begins if (first + 1 if first + 1 < completed else first - 1) not in begins}
    counted = [index for index in window if index not in (skipped or ()) and index not in cold]
    counts, problem = _counts(by_rank, counted or range(completed), manifest)
    phases = _phase_seconds(training, completed)
    sides = (events, training, generating)
    return Timeline(manifest, *sides, rules, seconds, phases, counts, problem, window, counted, skipped, tuple(begins))


def _side(events: Events, ranks: range) -> Events:
    kept = {rank: written for rank, written in events.ranks.items() if rank in ranks}
    return events if len(kept) == len(events.ranks) else replace(events, ranks=kept)


def _skipped_steps(by_rank: list[Sequence[Iteration]], window: range) -> dict[int, int] | None:
    """Most skipped steps of any rank in the iterations that have some; null where no rank tells them."""
    told = {index: [steps for rows in by_rank if (steps := rows[index].skipped_steps) is not None] for index in window}
    if not any(told.values()):
        return None
    return {index: most for index, steps in told.items() if (most := max(steps, default=0))}


def _phase_seconds(events: Events, completed: int) -> dict[str, tuple[float, ...]]:
    own = events.times.own[:, :completed]
    reports = dict(zip(events.times.phases, np.isfinite(own).sum(axis=(0, 1)).tolist(), strict=True))
    longest = dict(zip(events.times.phases, own.max(axis=0, initial=0.0).T.tolist(), strict=True))
    expected = completed * len(events.ranks)
    for phase in TIMED_NAMES:
        if reports.get(phase, 0) not in (0, expected):
            raise DamagedBundle(f"phase {phase} was reported {reports[phase]} times in {expected} iterations of ranks")
    return {phase: tuple(longest[phase]) for phase in TIMED_NAMES if reports.get(phase)}


def _counts(
    by_rank: list[Sequence[Iteration]], iterations: Sequence[int], manifest: Manifest
) -> tuple[Counts | None, str | None]:
    """The work of one iteration, or why there is no such one number.

    Which uneven samples share a micro batch differs from iteration to iteration, and with it the padding, of which the
    mean is taken; all ranks tell the same of each iteration.
    """
    if not iterations:
        return None, None
    uneven, first = manifest.work.lengths is not None, by_rank[0][iterations[0]].counts
    padded: list[Any] = [by_rank[0][index].counts.padded_tokens for index in iterations]
    mean = None if None in padded else round(math.fsum(padded) / len(padded))
    counts = Counts(**{**msgspec.structs.asdict(first), "padded_tokens": mean})
    for rank, rows in enumerate(by_rank):
        for index, of_padding in zip(iterations, padded, strict=True):
            found = rows[index].counts
            wanted = msgspec.structs.replace(first, padded_tokens=of_padding) if uneven else first
            if found != wanted:
                name = next(name for name in Counts.__struct_fields__ if getattr(found, name) != getattr(wanted, name))
                base = index if uneven and name == "padded_tokens" else iterations[0]
                return None, (
                    f"{name} is {getattr(found, name)} on rank {rank} in iteration {index}, "
                    f"but {getattr(wanted, name)} on rank 0 in iteration {base}"
                )
    problem = _not_as_asked(counts, manifest)
    return (None, problem) if problem else (counts, None)


def _not_as_asked(counts: Counts, manifest: Manifest) -> str | None:
    """Engine backends run the suite's own iteration, so its counts follow from the manifest."""
    if manifest.backend.kind != "engine":
        return None
    samples, workload, drawn = manifest.work.global_rollouts, manifest.workload, manifest.work.lengths
    prompt, response = samples * workload.prompt_tokens, samples * workload.new_tokens
    if drawn is not None:
        if not len(drawn.prompt) == len(drawn.response) == samples:
            return f"the manifest has {len(drawn.prompt)} and {len(drawn.response)} lengths of {samples} samples"
        prompt, response = sum(drawn.prompt), sum(drawn.response)
    asked = {
        "samples": samples,
        "prompt_tokens": prompt,
        "response_tokens": response,
        "trained_tokens": (prompt + response) * workload.ppo_epochs,
        "optimizer_steps": workload.optimizer_steps * workload.ppo_epochs,
    }
    for name, value in asked.items():
        if getattr(counts, name) != value:
            return f"{name} is {getattr(counts, name)} per iteration, but the manifest asks for {value}"
    return None
