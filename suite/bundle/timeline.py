"""The iterations of a run over all its ranks: the slowest rank sets the time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from suite.bundle.event_fields import Iteration, Turn
from suite.bundle.events import Events
from suite.bundle.facts import derivation
from suite.bundle.files import DamagedBundle
from suite.bundle.record import Counts
from suite.spec.manifest import Manifest
from suite.spec.phases import TIMED_NAMES

#: Ranks leave a barrier at slightly different moments, so phases may add up to a little more than their iteration.
_OVERLAP_SHARE, _OVERLAP_SECONDS = 0.01, 0.001


@dataclass(frozen=True)
class Timeline:
    """What all ranks completed. ``seconds[i]`` is iteration i, ``phase_seconds[phase][i]`` its phases, slowest rank.

    A phase that no rank ever reports is missing. ``window`` are the indices after the warm-up, ``counted`` those of
    them that are not void. ``skipped_steps``: optimizer steps that were skipped in each void iteration, by its index;
    null where no rank tells skipped steps. ``exposed``: phases in which the ranks wait for work that others did.
    ``asynchronous``: others work meanwhile at their own pace, so that phases are parts of no whole. ``turns``: the
    iterations that began one, of a run that took turns.
    """

    seconds: tuple[float, ...]
    phase_seconds: dict[str, tuple[float, ...]]
    counts: Counts | None
    counts_problem: str | None
    window: range
    counted: Sequence[int]
    skipped_steps: dict[int, int] | None
    exposed: frozenset[str] = frozenset()
    asynchronous: bool = False
    turns: tuple[int, ...] = ()

    @property
    def void(self) -> tuple[int, ...] | None:
        """Iterations after the warm-up that do not count; null where nothing tells of any."""
        if self.skipped_steps is None and len(self.counted) == len(self.window):
            return None
        return tuple(sorted(set(self.window).difference(self.counted)))

    @property
    def counted_seconds(self) -> tuple[float, ...]:
        return tuple(self.seconds[index] for index in self.counted)

    def other_seconds(self, iteration: int) -> float:
        """What the iteration took beyond its phases. Raises DamagedBundle where the phases are longer than it."""
        total = self.seconds[iteration]
        other = total - math.fsum(seconds[iteration] for seconds in self.phase_seconds.values())
        if other < -(_OVERLAP_SHARE * total + _OVERLAP_SECONDS):
            raise DamagedBundle(
                f"the phases of iteration {iteration} take {total - other:.6g} s, the iteration {total:.6g} s"
            )
        return max(0.0, other)


def make_timeline(events: Events, manifest: Manifest) -> Timeline:
    """Line the ranks up. An iteration counts as completed when every rank of the world completed it.

    An iteration in which a rank skipped an optimizer step (an overflow in fp16) did less than the others: it is void,
    and so is the first of a turn of several, which finds caches as others left them.
    Of a split run ``events`` are those of the training side, whose iterations are the run's.
    Raises DamagedBundle when a phase is reported by some ranks or in some iterations only.
    """
    world = manifest.layout.training_ranks
    by_rank = [events.of(rank, Iteration) for rank in range(world)]
    completed = min(map(len, by_rank))
    seconds = tuple(events.times.seconds[:, :completed].max(axis=0).tolist()) if completed else ()
    window = range(min(manifest.measure.warmup, completed), completed)
    skipped = _skipped_steps(by_rank, window) if derivation(events) >= 2 else None
    begins = tuple(turn.iteration for turn in events.of(0, Turn) if turn.iteration < completed)
    cold = _first_of_several(begins, completed)
    counted = [index for index in window if index not in (skipped or ()) and index not in cold]
    counts, problem = _counts(by_rank, counted or range(completed), manifest)
    asynchronous = manifest.layout.asynchronous
    # Others generate while these ranks train: a trainer's iterations follow each other unless it is asynchronous.
    is_ahead = manifest.layout.placement == "split" and (manifest.backend.kind == "engine" or asynchronous)
    exposed = frozenset(("generate",) if is_ahead else ())
    phases = _phase_seconds(events, completed)
    return Timeline(seconds, phases, counts, problem, window, counted, skipped, exposed, asynchronous, begins)


def _first_of_several(begins: Sequence[int], completed: int) -> set[int]:
    """The iterations that begin turns of more than one; the last turn may have been cut short."""
    alone = set(begins)
    return {first for first in begins if (first + 1 if first + 1 < completed else first - 1) not in alone}


def _skipped_steps(by_rank: list[Sequence[Iteration]], window: range) -> dict[int, int] | None:
    """Most skipped steps of any rank in the iterations that have some; null where no rank tells them."""
    known: dict[int, int] = {}
    for rows in by_rank:
        for index in window:
            steps = rows[index].skipped_steps
            if steps is not None:
                known[index] = max(known.get(index, 0), steps)
    return {index: steps for index, steps in sorted(known.items()) if steps} if known else None


def _phase_seconds(events: Events, completed: int) -> dict[str, tuple[float, ...]]:
    own = events.times.own[:, :completed]
    reports = dict(zip(events.times.phases, np.isfinite(own).sum(axis=(0, 1)).tolist(), strict=True))
    longest = dict(zip(events.times.phases, own.max(axis=0, initial=0.0).T.tolist(), strict=True))
    expected = completed * len(events.ranks)
    for phase in TIMED_NAMES:
        if reports.get(phase, 0) not in (0, expected):
            raise DamagedBundle(
                f"phase {phase} was reported {reports[phase]} times in {expected} iterations of all ranks"
            )
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
    uneven = manifest.work.lengths is not None
    first = by_rank[0][iterations[0]].counts
    padded = [by_rank[0][index].counts.padded_tokens for index in iterations]
    known = [tokens for tokens in padded if tokens is not None]
    mean = round(math.fsum(known) / len(padded)) if len(known) == len(padded) else None
    counts = Counts.model_construct(**{**msgspec.structs.asdict(first), "padded_tokens": mean})
    for rank, rows in enumerate(by_rank):
        for index in iterations:
            found = rows[index].counts
            if found == first and not uneven:
                continue
            for name in Counts.model_fields:
                base = index if uneven and name == "padded_tokens" else iterations[0]
                recorded, wanted = getattr(found, name), getattr(by_rank[0][base].counts, name)
                if recorded != wanted:
                    return None, (
                        f"{name} is {recorded} on rank {rank} in iteration {index}, "
                        f"but {wanted} on rank 0 in iteration {base}"
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
