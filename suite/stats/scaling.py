"""Scaling efficiency: how much of each device's rate is left when more devices share the work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from suite.spec.workload import Scaling
from suite.stats.compare import ratio_interval
from suite.stats.intervals import Interval, RunSeconds, pooled_rate
from suite.stats.moderated import Prior


@dataclass(frozen=True)
class ScalingPoint:
    """One number of ranks. ``speedup`` is its rate over the base's, ``eta`` that over the ratio of ranks."""

    ranks: int
    rate: Interval
    speedup: Interval
    eta: Interval
    above_one: bool


@dataclass(frozen=True)
class ScalingCurve:
    """Points by ranks against ``base_ranks``, the fewest that were measured (N0)."""

    kind: Scaling
    base_ranks: int
    points: tuple[ScalingPoint, ...]


def scaling_curve(
    kind: Scaling,
    runs_by_ranks: Mapping[int, Sequence[RunSeconds]],
    prior: Prior | None = None,
    speedups: Mapping[int, Interval] = MappingProxyType({}),
) -> ScalingCurve:
    """eta(N; N0) = (rate_N / N) / (rate_N0 / N0) under one strategy, N0 the fewest ranks measured.

    Rates are work per second of the whole world. Under weak scaling the work per rank is the same at every point,
    under strong scaling the work of all ranks is; in both, eta is 1 when every device keeps its rate. Intervals
    are those of the ratio of rates, so the base's noise is in every point but the base, where eta is 1 by definition.
    ``prior``: what the rows of the plan share of their variance. ``speedups``: by ranks, where they are known from runs
    of the same rounds (``suite.stats.rounds``).

    An eta above 1 is kept, and flagged where all of its interval is, or it has none: a sign of a base that is short of
    memory or cache, or of unequal work.

    Raises ValueError for no point, a point without runs, or work that does not fit the kind.
    """
    if not runs_by_ranks or not all(ranks > 0 and runs for ranks, runs in runs_by_ranks.items()):
        raise ValueError("a scaling curve needs runs at each of its points")
    _check_work(kind, runs_by_ranks)
    base = min(runs_by_ranks)

    def speedup_at(ranks: int) -> Interval:
        if ranks == base:
            return Interval(1.0, 1.0, 1.0)
        return ratio_interval(runs_by_ranks[ranks], runs_by_ranks[base], prior=prior)

    points = tuple(
        _point(ranks, runs_by_ranks[ranks], base, speedups.get(ranks) or speedup_at(ranks), prior)
        for ranks in sorted(runs_by_ranks)
    )
    return ScalingCurve(kind=kind, base_ranks=base, points=points)


def _point(ranks: int, runs: Sequence[RunSeconds], base: int, speedup: Interval, prior: Prior | None) -> ScalingPoint:
    eta = speedup.scaled(base / ranks)
    above_one = (eta.value if eta.low is None else eta.low) > 1
    return ScalingPoint(ranks, pooled_rate(runs, prior), speedup, eta, above_one)


def _check_work(kind: Scaling, runs_by_ranks: Mapping[int, Sequence[RunSeconds]]) -> None:
    """Work per rank (weak) or in all (strong) must be one number over the whole curve."""
    works = [run.work / (ranks if kind == "weak" else 1) for ranks, runs in runs_by_ranks.items() for run in runs]
    if not math.isclose(min(works), max(works), rel_tol=1e-9):
        where = "per rank" if kind == "weak" else "of all ranks"
        raise ValueError(f"{kind} scaling needs equal work {where}, but it is {min(works):g} to {max(works):g}")
