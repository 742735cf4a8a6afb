"""How much of each rank's rate is left when more ranks share the work: one curve per strategy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from suite.report.facts.costs import phase_runs
from suite.report.facts.noise import place_of
from suite.report.facts.pool import Row
from suite.report.facts.rounds import in_turns, rounds_of
from suite.spec.workload import Scaling
from suite.stats.compare import decided, ratio_interval
from suite.stats.intervals import Interval
from suite.stats.rounds import Rounds, paired
from suite.stats.scaling import scaling_curve


@dataclass(frozen=True)
class Point:
    """One row of a curve. ``phase_eta``: the same ratio, with its interval, for each phase's own time.

    ``paired_rounds``: speedup and eta are means over so many rounds of their value within each; null: of independent
    runs, as each phase's always are.
    """

    row: Row
    speedup: Interval
    eta: Interval
    above_one: bool
    paired_rounds: int | None
    phase_eta: tuple[tuple[str, Interval], ...]


@dataclass(frozen=True)
class Curve:
    """Rows that differ in their number of ranks alone, against the one with the fewest (N0)."""

    kind: Scaling
    base: Row
    points: tuple[Point, ...]

    @property
    def largest(self) -> Point:
        """The point of most ranks."""
        return self.points[-1]


@dataclass(frozen=True)
class Scalings:
    """Curves of at least two rank counts, and the measured rows that belong to none."""

    curves: tuple[Curve, ...]
    alone: tuple[Row, ...]


def scale(rows: Sequence[Row]) -> Scalings:
    """The curves in the order of their bases; weak and strong never share one, nor do two strategies."""
    series: dict[tuple[str, Scaling, float], list[Row]] = defaultdict(list)
    for row in rows:
        for kind in _kinds(row):
            series[row.series_hash, kind, _work_unit(row, kind)].append(row)
    found = []
    for (_, kind, _), members in series.items():
        members.sort(key=lambda row: (row.ranks, row.nodes, row.number))
        base, larger = members[0], [row for row in members[1:] if row.ranks > members[0].ranks]
        if larger:
            found.append((kind, base, larger))
    rounds = rounds_of([[base, *larger] for _, base, larger in found])
    curves = [
        Curve(kind, base, tuple(_point(kind, base, row, rounds[place_of(base)]) for row in larger))
        for kind, base, larger in found
    ]
    curves.sort(key=lambda curve: curve.base.number)
    used = {row.number for curve in curves for row in (curve.base, *(point.row for point in curve.points))}
    alone = tuple(row for row in rows if row.measured and row.number not in used)
    return Scalings(curves=tuple(curves), alone=tuple(sorted(alone, key=lambda row: row.number)))


def _kinds(row: Row) -> tuple[Scaling, ...]:
    """The kinds of curve that a row can be on: one rank does the same work under either."""
    if not row.measured:
        return ()
    if row.ranks == 1:
        return ("weak", "strong")
    return ("strong",) if row.scaling == "strong" else ("weak",)


def _work_unit(row: Row, kind: Scaling) -> float:
    """What must stay the same along a curve: samples per rank (weak) or samples in all (strong)."""
    assert row.samples_per_iteration is not None, "a measured row has counts"
    return row.samples_per_iteration / (row.ranks if kind == "weak" else 1)


def _point(kind: Scaling, base: Row, row: Row, rounds: Rounds | None) -> Point:
    within = paired(in_turns(row), in_turns(base), rounds)
    speedups = {row.ranks: decided(within.difference).ratio} if within else {}
    curve = scaling_curve(kind, {base.ranks: base.measured, row.ranks: row.measured}, base.prior, speedups)
    point, count = curve.points[-1], within.rounds if within else None
    return Point(row, point.speedup, point.eta, point.above_one, count, _phase_eta(base, row))


def _phase_eta(base: Row, row: Row) -> tuple[tuple[str, Interval], ...]:
    """Of every phase that all runs of both rows took time for: work per second and rank, over the same of the base.

    None of asynchronous rows: others work while they last.
    """
    assert base.samples_per_iteration and row.samples_per_iteration, "a measured row has counts"
    if row.setting.asynchronous:
        return ()
    before = {phase.name: phase_runs(base.samples_per_iteration, phase.by_run) for phase in base.phases}
    found = []
    for phase in row.phases:
        runs, base_runs = phase_runs(row.samples_per_iteration, phase.by_run), before.get(phase.name)
        if runs and base_runs:
            found.append((phase.name, ratio_interval(runs, base_runs).scaled(base.ranks / row.ranks)))
    return tuple(found)
