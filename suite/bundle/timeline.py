"""The iterations of a run over all its ranks: the slowest rank sets the time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from suite.bundle.events import Event, Events
from suite.bundle.files import DamagedBundle
from suite.bundle.record import Counts
from suite.spec.manifest import Manifest
from suite.spec.phases import TIMED_NAMES

#: Ranks leave a barrier at slightly different moments, so phases may add up to a little more than their iteration.
_OVERLAP_SHARE, _OVERLAP_SECONDS = 0.01, 0.001


@dataclass(frozen=True)
class Timeline:
    """What all ranks completed. ``seconds[i]`` is iteration i, ``phase_seconds[phase][i]`` its phases, slowest rank.

    A phase that no rank ever reports is missing. ``counted`` are the indices after the warm-up.
    """

    seconds: tuple[float, ...]
    phase_seconds: dict[str, tuple[float, ...]]
    counts: Counts | None
    counts_problem: str | None
    counted: range

    @property
    def counted_seconds(self) -> tuple[float, ...]:
        """Seconds of the counted iterations, in order."""
        return self.seconds[self.counted.start : self.counted.stop]

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

    Raises DamagedBundle when a phase is reported by some ranks or in some iterations only.
    """
    world = manifest.layout.ranks
    by_rank = [_of_kind(events.ranks.get(rank, ()), "iteration") for rank in range(world)]
    completed = min(map(len, by_rank))
    seconds = tuple(float(max(rows[index]["seconds"] for rows in by_rank)) for index in range(completed))
    counted = range(min(manifest.measure.warmup, completed), completed)
    counts, problem = _counts(by_rank, counted if counted else range(completed), manifest)
    return Timeline(seconds, _phase_seconds(events, completed), counts, problem, counted)


def _of_kind(events: Iterable[Event], kind: str) -> list[Event]:
    return [event for event in events if event["kind"] == kind]


def _phase_seconds(events: Events, completed: int) -> dict[str, tuple[float, ...]]:
    longest = {phase: [0.0] * completed for phase in TIMED_NAMES}
    reports = dict.fromkeys(TIMED_NAMES, 0)
    for rank in events.ranks.values():
        for event in rank:
            if event["kind"] == "phase" and event["iteration"] < completed:
                phase, iteration = event["phase"], event["iteration"]
                longest[phase][iteration] = max(longest[phase][iteration], float(event["seconds"]))
                reports[phase] += 1
    expected = completed * len(events.ranks)
    for phase, count in reports.items():
        if count not in (0, expected):
            raise DamagedBundle(f"phase {phase} was reported {count} times in {expected} iterations of all ranks")
    return {phase: tuple(longest[phase]) for phase in TIMED_NAMES if reports[phase]}


def _counts(by_rank: list[list[Event]], iterations: range, manifest: Manifest) -> tuple[Counts | None, str | None]:
    """The work of one iteration, or why there is no such one number."""
    if not iterations:
        return None, None
    first = by_rank[0][iterations.start]["counts"]
    counts = Counts.model_construct(**{name: first[name] for name in Counts.model_fields})
    for rank, rows in enumerate(by_rank):
        for index in iterations:
            found = rows[index]["counts"]
            for name in Counts.model_fields:
                if found[name] != first[name]:
                    return None, (
                        f"{name} is {found[name]} on rank {rank} in iteration {index}, "
                        f"but {first[name]} on rank 0 in iteration {iterations.start}"
                    )
    problem = _not_as_asked(counts, manifest)
    return (None, problem) if problem else (counts, None)


def _not_as_asked(counts: Counts, manifest: Manifest) -> str | None:
    """Engine backends run the suite's own iteration, so its counts follow from the manifest."""
    if manifest.backend.kind != "engine":
        return None
    samples, workload = manifest.work.global_rollouts, manifest.workload
    asked = {
        "samples": samples,
        "prompt_tokens": samples * workload.prompt_tokens,
        "response_tokens": samples * workload.new_tokens,
        "trained_tokens": samples * workload.sequence_tokens * workload.ppo_epochs,
        "optimizer_steps": workload.optimizer_steps * workload.ppo_epochs,
    }
    for name, value in asked.items():
        if getattr(counts, name) != value:
            return f"{name} is {getattr(counts, name)} per iteration, but the manifest asks for {value}"
    return None
