"""Where a difference between two rows comes from: their rates in the main phases alone."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suite.report.facts.entry import RUNS_TO_PUBLISH
from suite.report.facts.pool import Row, unbounded
from suite.stats.compare import ComparisonVerdict
from suite.stats.intervals import Interval, RunSeconds
from suite.stats.rounds import InTurns, Rounds, compare_in_turns, find_rounds

#: What is compared beside the whole iteration, and which phases it is.
COMPARED: dict[str, tuple[str, ...]] = {
    "generate": ("generate",),
    "score + reference": ("score", "reference"),
    "train": ("train",),
}
_REST = "the other phases"

#: By part; null where rows are compared as independent ones in it.
PhaseRounds = Mapping[str, Rounds | None]


@dataclass(frozen=True)
class PhaseRatio:
    """Rate of a row in some phases alone over that of another, with bounds that hold together for all of ``COMPARED``
    and all pairs of rows of a group at 95 %, apart from those of the whole iteration. ``verdict``: null of too few
    runs. ``paired_rounds``: the ratio is of runs of so many same rounds; null: of independent runs."""

    name: str
    ratio: Interval
    verdict: ComparisonVerdict | None
    paired_rounds: int | None


@dataclass(frozen=True)
class Difference:
    """What a row takes longer per iteration than another, above 0, and the part of it with the largest share, which is
    above 1 where the row is ahead in other phases."""

    seconds: float
    mostly: str
    share: float

    @property
    def is_mostly_one(self) -> bool:
        return self.share > 0.5


def phase_ratios(row: Row, best: Row, sides: int, rounds: PhaseRounds) -> tuple[PhaseRatio, ...]:
    """Of every part that both rows took time for in all of their runs. ``sides``: how many rows the group has.

    Phases do not vary as whole iterations do, so that what rows share of their noise is not used.
    """
    found = []
    for name, phases in COMPARED.items():
        a, b = in_part(row, phases), in_part(best, phases)
        if a is None or b is None or (row.phase_names ^ best.phase_names) & set(phases):
            continue
        result = compare_in_turns(a, b, sides=sides, rounds=rounds.get(name), pairs=len(COMPARED))
        few = (result.paired_rounds or min(len(a.runs), len(b.runs))) < RUNS_TO_PUBLISH
        ratio = unbounded(result.ratio, len(a.runs), len(b.runs))
        found.append(PhaseRatio(name, ratio, None if few else result.verdict, result.paired_rounds))
    return tuple(found)


def phase_rounds(groups: Sequence[Sequence[Row]]) -> PhaseRounds:
    """Of groups on a machine that is known to wander from round to round: which parts are compared within rounds."""
    parts = {
        name: [[part for row in group if (part := in_part(row, phases))] for group in groups]
        for name, phases in COMPARED.items()
    }
    return {name: find_rounds(known, None, is_known=True) for name, known in parts.items()}


def in_part(row: Row, phases: Sequence[str]) -> InTurns | None:
    """The runs of a row by their rates in these phases alone; null where one took no time for them."""
    assert row.samples_per_iteration, "a ranked row has counts"
    by_run = zip(*(phase.by_run for phase in row.phases if phase.name in phases), strict=True)
    by_iteration = (zip(*(run[name] for name in phases if name in run), strict=True) for run in row.phase_seconds)
    seconds = [tuple(map(math.fsum, run)) for run in by_iteration] or [(math.fsum(run),) for run in by_run]
    if not seconds or not all(run and min(run) > 0 for run in seconds):
        return None
    return InTurns(tuple(RunSeconds(row.samples_per_iteration, run) for run in seconds), row.turns)


def difference(row: Row, best: Row) -> Difference | None:
    """Null where the row does not take longer than the best, or either has no phases."""
    before, after = _seconds(best), _seconds(row)
    total = math.fsum(after.values()) - math.fsum(before.values())
    if set(before) != set(after) or not total > 0:
        return None
    shares = {name: (after[name] - before[name]) / total for name in after}
    mostly = max(shares, key=lambda name: shares[name])
    return Difference(total, mostly, shares[mostly])


def _seconds(row: Row) -> dict[str, float]:
    """Seconds per iteration by part, the phases that are not compared as one."""
    part_of = {phase: name for name, phases in COMPARED.items() for phase in phases}
    seconds: dict[str, float] = defaultdict(float)
    for phase in row.phases:
        seconds[part_of.get(phase.name, _REST)] += phase.seconds
    return seconds
