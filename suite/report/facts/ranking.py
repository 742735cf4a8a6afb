"""Which configuration is faster: only among rows of equal work under an equal setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK, Setting
from suite.report.facts.kind import WorkKind
from suite.report.facts.phase_ratios import Difference, PhaseRatio, difference, phase_ratios
from suite.report.facts.pool import Row
from suite.stats.compare import Comparison, compare, ratio_interval
from suite.stats.intervals import Interval

Verdict = Literal["faster", "slower", "not distinguishable", "too few runs"]


@dataclass(frozen=True)
class RankedRow:
    """A row against the best of its group: ``ratio`` of their rates; the best's own verdict is against all others.

    The bounds of all ratios between rows of a group hold together at 95 %. ``in_turns``: whether runs of the two took
    turns, so that a machine that drifts meets both; else all of one row came before all of the other. ``by_phase`` and
    ``difference`` are against the best too; the best has none.
    """

    row: Row
    ratio: Interval
    verdict: Verdict
    equivalent: bool | None
    provisional: bool
    in_turns: bool
    by_phase: tuple[PhaseRatio, ...]
    difference: Difference | None


@dataclass(frozen=True)
class Group:
    """Rows of equal work on equally many ranks, fastest first. ``lead`` is the best's rate over the runner-up's."""

    size: str
    ranks: int
    workload: str
    work: WorkKind
    setting: Setting
    lead: Interval
    places: tuple[RankedRow, ...]

    @property
    def verdict(self) -> Verdict:
        return self.places[0].verdict


@dataclass(frozen=True)
class Ranking:
    """Groups of at least two rows, and the measured rows that are in none."""

    groups: tuple[Group, ...]
    apart: tuple[Row, ...]


def rank(rows: Sequence[Row]) -> Ranking:
    """Group the rows that have a rate by work, ranks and setting, and compare within each group."""
    alike: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        if row.measured:
            alike[row.setting, row.work_hash, row.lengths_hash, row.ranks, row.samples_per_iteration].append(row)
    groups = tuple(_group(members) for members in alike.values() if len(members) > 1)
    apart = tuple(members[0] for members in alike.values() if len(members) == 1)
    return Ranking(groups=groups, apart=apart)


def _group(rows: Sequence[Row]) -> Group:
    ordered = sorted(rows, key=lambda row: (-_rate(row), row.number))
    best, others = ordered[0], ordered[1:]
    pairs = len(ordered) * (len(ordered) - 1) // 2
    against_best = [compare(row.measured, best.measured, pairs=pairs) for row in others]
    others_ranked = [
        _ranked_row(row, best, comparison, pairs) for row, comparison in zip(others, against_best, strict=True)
    ]
    return Group(
        size=best.size,
        ranks=best.ranks,
        workload=best.workload,
        work=best.work,
        setting=best.setting,
        lead=ratio_interval(best.measured, others[0].measured, pairs),
        places=(_best(best, others_ranked), *others_ranked),
    )


def _ranked_row(row: Row, best: Row, comparison: Comparison, pairs: int) -> RankedRow:
    runs = min(len(row.measured), len(best.measured))
    too_few = runs < RUNS_TO_PUBLISH
    return RankedRow(
        row=row,
        ratio=comparison.ratio,
        verdict="too few runs" if too_few else comparison.verdict,
        equivalent=None if too_few else comparison.equivalent,
        provisional=not too_few and runs < RUNS_TO_RANK,
        in_turns=_took_turns(row.started, best.started),
        by_phase=phase_ratios(row, best, pairs),
        difference=difference(row, best),
    )


def _took_turns(some: Sequence[float], others: Sequence[float]) -> bool:
    """Whether either side has a start before the last of the other; one run alone cannot take turns."""
    if len(some) < 2 or len(others) < 2:
        return True
    return min(some) < max(others) and min(others) < max(some)


def _best(row: Row, others: Sequence[RankedRow]) -> RankedRow:
    """The best is faster only if every other row is slower, each by enough runs."""
    verdicts = {ranked.verdict for ranked in others}
    verdict: Verdict = "not distinguishable"
    if verdicts == {"slower"}:
        verdict = "faster"
    elif "too few runs" in verdicts:
        verdict = "too few runs"
    provisional = verdict != "too few runs" and any(ranked.provisional for ranked in others)
    return RankedRow(
        row, Interval(1.0, None, None), verdict, None, provisional, in_turns=True, by_phase=(), difference=None
    )


def _rate(row: Row) -> float:
    assert row.samples_per_second is not None, "a ranked row has a rate"
    return row.samples_per_second.value
