"""Which configuration is faster: only among rows of equal work under an equal setting; and engines and trainers that
were asked for the same work, shown side by side and never in one ranking."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from suite.report.facts import noise
from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK, grouped
from suite.report.facts.pool import Row, unbounded
from suite.report.facts.work import done_otherwise, otherwise
from suite.stats.compare import Comparison, compare
from suite.stats.intervals import Interval, log_rates
from suite.stats.moderated import mean_of
from suite.stats.rounds import compare_in_turns, fastest

Verdict = Literal["faster", "slower", "not distinguishable", "too few runs"]


@dataclass(frozen=True)
class RankedRow:
    """A row against the best of its group; the best's own verdict is against all others. Bounds hold together at 95 %
    for all rows of a group. ``in_turns``: whether runs of the two took turns, so that a machine that drifts meets both.
    ``paired_rounds``: the ratio is the mean of its values within so many rounds; null: of independent runs. ``turns``:
    of rows in turns by iteration, how many it is made from; their order is as sure as the interval says, and needs no
    further runs."""

    row: Row
    ratio: Interval
    verdict: Verdict
    equivalent: bool | None
    provisional: bool
    in_turns: bool
    paired_rounds: int | None
    turns: int | None
    by_phase: tuple[noise.PhaseRatio, ...] = ()
    difference: noise.Difference | None = None

    @property
    def is_unsteady(self) -> bool:
        """Whether its rate, and so its ratio, depends on when it was measured: within turns a ratio does not."""
        return self.turns is None and self.row.unsteady_runs > 0


@dataclass(frozen=True)
class Group:
    """Rows of equal work on equally many ranks, fastest first. ``lead``: the best's rate over the runner-up's."""

    lead: Interval
    places: tuple[RankedRow, ...]

    @property
    def best(self) -> Row:
        return self.places[0].row

    @property
    def is_equal(self) -> bool:
        """Whether nothing tells its rows apart and all are within the margin of the best."""
        best, *others = self.places
        return best.verdict == "not distinguishable" and all(one.equivalent for one in others)


@dataclass(frozen=True)
class Ranking:
    """Groups of at least two rows, and the measured rows that are in none."""

    groups: tuple[Group, ...]
    apart: tuple[Row, ...]


def rank(rows: Sequence[Row]) -> Ranking:
    """By work (of trainers what their runs counted too), seed, ranks and setting."""

    def conditions(row: Row) -> tuple:
        work = (row.work_hash, row.lengths_hash, row.samples_per_iteration, done_otherwise(row))
        return row.setting, row.manifest.measure.seed, row.ranks, work

    alike = grouped((conditions(row), row) for row in rows if row.measured).values()
    together = [members for members in alike if len(members) > 1]
    rounds = noise.rounds_of(together)
    return Ranking(
        groups=tuple(_group(members, rounds[noise.place_of(members[0])]) for members in together),
        apart=tuple(members[0] for members in alike if len(members) == 1),
    )


def _group(rows: Sequence[Row], rounds: noise.RoundsByPart) -> Group:
    ordered = list(rows)
    best = ordered.pop(fastest([noise.in_turns(row) for row in ordered], rounds[noise.WHOLE]))
    sides, whole = len(rows), rounds[noise.WHOLE]

    def compared(row: Row, other: Row) -> Comparison:
        return compare_in_turns(noise.in_turns(row), noise.in_turns(other), prior=best.prior, sides=sides, rounds=whole)

    found = sorted(((row, compared(row, best)) for row in ordered), key=lambda one: -one[1].ratio.value)
    others = [_ranked_row(row, best, comparison, sides, rounds) for row, comparison in found]
    verdicts = {ranked.verdict for ranked in others}
    too_few: Verdict = "too few runs" if "too few runs" in verdicts else "not distinguishable"
    first = RankedRow(
        row=best,
        ratio=Interval(1.0, None, None),
        # only where every other row is slower, each by enough runs
        verdict="faster" if verdicts == {"slower"} else too_few,
        equivalent=None,
        provisional="too few runs" not in verdicts and any(ranked.provisional for ranked in others),
        in_turns=True,
        paired_rounds=None,
        turns=min((ranked.turns for ranked in others if ranked.turns), default=None),
    )
    return Group(_ratio(compared(best, found[0][0]), best, found[0][0]), (first, *others))


def _ranked_row(row: Row, best: Row, comparison: Comparison, sides: int, rounds: noise.RoundsByPart) -> RankedRow:
    runs = comparison.paired_rounds or min(len(row.measured), len(best.measured))
    too_few = runs < RUNS_TO_PUBLISH
    some, others = row.started, best.started
    return RankedRow(
        row=row,
        ratio=_ratio(comparison, row, best),
        verdict="too few runs" if too_few else comparison.verdict,
        equivalent=None if too_few else comparison.equivalent,
        provisional=not too_few and comparison.turns is None and runs < RUNS_TO_RANK,
        # one run alone cannot take turns
        in_turns=min(len(some), len(others)) < 2 or (min(some) < max(others) and min(others) < max(some)),
        paired_rounds=comparison.paired_rounds,
        turns=comparison.turns,
        by_phase=() if row.setting.asynchronous else noise.phase_ratios(row, best, sides, rounds),
        difference=None if row.setting.asynchronous else noise.difference(row, best),
    )


def _ratio(comparison: Comparison, row: Row, other: Row) -> Interval:
    return unbounded(comparison.ratio, len(row.measured), len(other.measured))


@dataclass(frozen=True)
class Side:
    """``ratio``: to the fastest engine row; null for that row itself, and where there is none. ``otherwise``: in what
    its counts and passes differ from those of the first row."""

    row: Row
    ratio: Interval | None
    otherwise: tuple[str, ...]


def side_by_side(rows: Sequence[Row]) -> tuple[tuple[Side, ...], ...]:
    """Rows that were asked for equal work in one setting and are no ranking: engines and trainers, synchronous and
    asynchronous ones, or trainers that did other work. In this order, each by their rates."""
    settings = [(replace(row.setting, kind="engine", asynchronous=False), row) for row in rows if row.measured]
    alike = grouped(((setting, row.work_hash, row.lengths_hash, row.ranks), row) for setting, row in settings)
    return tuple(
        _beside(members)
        for members in alike.values()
        if len({(row.setting.kind, row.setting.asynchronous, done_otherwise(row)) for row in members}) > 1
    )


def _beside(rows: Sequence[Row]) -> tuple[Side, ...]:
    ordered = sorted(
        rows, key=lambda row: (row.setting.asynchronous, row.setting.kind, -mean_of(log_rates(row.measured)))
    )
    first = ordered[0]
    best = first if first.setting.kind == "engine" else None
    sides = []
    for row in ordered:
        ratio = None if best is None or row is best else compare(row.measured, best.measured, prior=best.prior).ratio
        sides.append(Side(row, ratio, otherwise(row, first)))
    return tuple(sides)
