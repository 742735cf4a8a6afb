"""How much of each rank's rate is left when more ranks share the work: one curve per strategy."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from suite.report.facts.noise import WHOLE, in_part, in_turns, place_of, rounds_of
from suite.report.facts.pool import Row, unbounded
from suite.spec.workload import Scaling
from suite.stats.intervals import Interval
from suite.stats.rounds import Rounds, compare_in_turns


@dataclass(frozen=True)
class Point:
    """One row of a curve. ``phase_eta``: of each phase's own time. ``paired_rounds``: speedup and eta are means of
    their values within so many rounds, or starts of rows in turns by iteration; null: of independent runs."""

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
        return self.points[-1]

    @property
    def ranks(self) -> list[int]:
        return [self.base.ranks, *(point.row.ranks for point in self.points)]

    @property
    def etas(self) -> list[Interval]:
        """The base's, which is 1, and those of the others."""
        return [Interval(1.0, None, None), *(point.eta for point in self.points)]


def scale(rows: Sequence[Row]) -> tuple[Curve, ...]:
    """The curves in the order of their bases; weak and strong never share one, nor do two strategies."""
    series: dict[tuple[tuple, Scaling, float], list[Row]] = defaultdict(list)
    for row in rows:
        # one rank does the same work under either
        kinds: tuple[Scaling, ...] = ("weak", "strong") if row.ranks == 1 else (row.manifest.workload.scaling,)
        for kind in kinds if row.measured else ():
            # what stays the same along a curve: samples per rank, or samples in all
            unit = (row.samples_per_iteration or 0) / (row.ranks if kind == "weak" else 1)
            series[series_of(row), kind, unit].append(row)
    found = []
    for (_, kind, _), members in series.items():
        members.sort(key=lambda row: (row.ranks, row.manifest.layout.nodes, row.number))
        base, larger = members[0], [row for row in members[1:] if row.ranks > members[0].ranks]
        found += [(kind, base, larger)] if larger else []
    rounds = rounds_of([[base, *larger] for _, base, larger in found])
    curves = [
        Curve(kind, base, tuple(_point(base, row, rounds[place_of(base)][WHOLE]) for row in larger))
        for kind, base, larger in found
    ]
    return tuple(sorted(curves, key=lambda curve: curve.base.number))


def series_of(row: Row) -> tuple:
    """Equal of points of one scaling curve: all is equal but ranks and samples."""
    manifest, no_series = row.manifest, {"name", "note", "source", "scaling", "rollouts"}
    return (
        manifest.backend.model_dump_json(),
        manifest.size.model_dump_json(exclude={"note", "source"}),
        manifest.workload.model_dump_json(exclude=no_series),
        manifest.measure.model_dump_json(exclude={"warmup", "iterations"}),
        (manifest.layout.strategy(), manifest.track, row.setting.machine, row.launch),
        tuple(sorted(manifest.stack_identity.items())),
    )


def _point(base: Row, row: Row, rounds: Rounds | None) -> Point:
    """eta(N; N0) = (rate_N / N) / (rate_N0 / N0), rates of the whole world: its interval is that of the ratio of rates.
    One that is surely above 1 is flagged: a sign of a base that is short of memory or cache."""
    found = compare_in_turns(in_turns(row), in_turns(base), prior=base.prior, rounds=rounds)
    eta = found.ratio.scaled(base.ranks / row.ranks)
    return Point(
        row=row,
        speedup=found.ratio,
        eta=unbounded(eta, len(row.measured), len(base.measured)),
        above_one=(eta.value if eta.low is None else eta.low) > 1,
        paired_rounds=found.paired_rounds,
        phase_eta=_phase_eta(base, row, rounds if row.setting.turns == "iterations" else None),
    )


def _phase_eta(base: Row, row: Row, rounds: Rounds | None) -> tuple[tuple[str, Interval], ...]:
    """Of phases that all runs of both rows took time for; none of asynchronous rows, where others work meanwhile."""
    if row.setting.asynchronous:
        return ()
    found = []
    for name in (phase.name for phase in row.phases if phase.name in base.phase_names):
        mine, theirs = in_part(row, (name,)), in_part(base, (name,))
        if mine and theirs:
            found.append((name, compare_in_turns(mine, theirs, rounds=rounds).ratio.scaled(base.ranks / row.ranks)))
    return tuple(found)
