"""What the rows of a folder share of their noise, which took turns, and where a difference of two comes from: their
rates in the main phases alone."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from suite.report.facts.entry import RUNS_TO_PUBLISH, grouped
from suite.report.facts.pool import Row, unbounded
from suite.stats.compare import ComparisonVerdict
from suite.stats.intervals import Interval, RunSeconds, log_rates
from suite.stats.moderated import moderate
from suite.stats.rounds import InTurns, Rounds, compare_in_turns, find_rounds


def share_noise(rows: Sequence[Row]) -> tuple[Row, ...]:
    """With intervals from the variance of all rows of a machine and kind of device; suspect ones share nothing."""
    alike = grouped((place_of(row), log_rates(row.measured)) for row in rows if row.is_ranked)
    priors = {place: moderate(found) for place, found in alike.items()}
    return tuple(replace(row, prior=priors[place_of(row)]) if row.measured and row.is_ranked else row for row in rows)


def two_mode_lines(rows: Sequence[Row]) -> tuple[str, ...]:
    """Of rows with runs that are slower than the others by more than noise."""
    return tuple(
        f"{row.name}: {found.slow} of {len(row.measured)} runs {'is' if found.slow == 1 else 'are'} {found.loss:.1%} "
        f"slower than the others (two modes); its rate is of all of them, and its interval need not hold that of either"
        for row in rows
        if (found := row.two_modes) is not None
    )


def place_of(row: Row) -> tuple[str, str]:
    """Machine and kind of device: rows of one place share noise."""
    return row.setting.machine, row.setting.device


def in_turns(row: Row) -> InTurns:
    return InTurns(row.measured, row.turns)


#: What is compared beside the whole iteration, and which phases it is.
COMPARED: dict[str, tuple[str, ...]] = {
    "generate": ("generate",),
    "score + reference": ("score", "reference"),
    "train": ("train",),
}
WHOLE, _REST = "whole iteration", "the other phases"

#: Of the whole iteration and by part; null where rows are compared as independent ones in it.
RoundsByPart = dict[str, Rounds | None]


@dataclass(frozen=True)
class PhaseRatio:
    """Rate of a row in some phases over that of another; bounds hold together for all of ``COMPARED`` and all pairs of
    rows of a group at 95 %. ``verdict``: null of too few runs."""

    name: str
    ratio: Interval
    verdict: ComparisonVerdict | None


@dataclass(frozen=True)
class Difference:
    """What a row takes longer per iteration, and the part with more than half of it; above 1: elsewhere it is ahead."""

    seconds: float
    mostly: str
    share: float


def phase_ratios(row: Row, best: Row, sides: int, rounds: RoundsByPart) -> tuple[PhaseRatio, ...]:
    """Of every part that both rows took time for in all runs. Phases do not vary as whole iterations do, so that what
    rows share of their noise is not used. ``sides``: how many rows the group has."""
    found = []
    for name, phases in COMPARED.items():
        a, b = in_part(row, phases), in_part(best, phases)
        if a is None or b is None or (row.phase_names ^ best.phase_names) & set(phases):
            continue
        result = compare_in_turns(a, b, sides=sides, rounds=rounds.get(name), pairs=len(COMPARED))
        few = (result.paired_rounds or min(len(a.runs), len(b.runs))) < RUNS_TO_PUBLISH
        ratio = unbounded(result.ratio, len(a.runs), len(b.runs))
        found.append(PhaseRatio(name, ratio, None if few else result.verdict))
    return tuple(found)


def rounds_of(groups: Sequence[Sequence[Row]]) -> dict[tuple[str, str], RoundsByPart]:
    """By machine and kind of device; parts are compared within rounds only where the machine is known to wander."""
    found: dict[tuple[str, str], RoundsByPart] = {}
    for place, alike in grouped((place_of(group[0]), group) for group in groups).items():
        whole = find_rounds([list(map(in_turns, group)) for group in alike], alike[0][0].prior)
        found[place] = {WHOLE: whole}
        for name, phases in COMPARED.items() if whole else ():
            parts = [[part for row in group if (part := in_part(row, phases))] for group in alike]
            found[place][name] = find_rounds(parts, None, is_known=True)
    return found


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
    """Null where the row does not take longer than the best, no part has most of it, or either has no phases."""
    before, after = _seconds(best), _seconds(row)
    total = math.fsum(after.values()) - math.fsum(before.values())
    if set(before) != set(after) or not total > 0:
        return None
    shares = {name: (after[name] - before[name]) / total for name in after}
    mostly = max(shares, key=lambda name: shares[name])
    return Difference(total, mostly, shares[mostly]) if shares[mostly] > 0.5 else None


def _seconds(row: Row) -> dict[str, float]:
    """Seconds per iteration by part, the phases that are not compared as one."""
    part_of = {phase: name for name, phases in COMPARED.items() for phase in phases}
    seconds: dict[str, float] = defaultdict(float)
    for phase in row.phases:
        seconds[part_of.get(phase.name, _REST)] += phase.seconds
    return seconds
