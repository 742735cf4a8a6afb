"""Scaling curves: which rows are one, and their efficiencies."""

import pytest

from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.facts.scaling import Scalings
from suite.spec.layout import Layout
from tests.report import entries as made

STRONG = made.workload(scaling="strong")


def scalings(*runs: list[Entry]) -> Scalings:
    return build([one for each in runs for one in each]).scaling


@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_eta_is_the_rate_per_rank_over_that_of_the_fewest_ranks(kind: str) -> None:
    work = made.workload(scaling=kind)
    one, two = (made.repeats(3, rate=rate, ranks=ranks, work=work) for ranks, rate in ((1, 10), (2, 16)))
    (curve,) = scalings(one, two).curves
    assert (curve.kind, curve.base.ranks, curve.largest.row.ranks) == (kind, 1, 2)
    assert (curve.largest.eta.value, curve.largest.speedup.value) == pytest.approx((0.8, 1.6), rel=0.02)
    train = dict(curve.largest.phase_eta)["train"]
    assert train.low < train.value < train.high and train.value == pytest.approx(curve.largest.eta.value)
    assert train.low == pytest.approx(curve.largest.eta.low, rel=0.01), "every phase is the same share of every run"


def test_weak_and_strong_rows_are_curves_of_their_own_on_one_base_of_one_rank() -> None:
    found = scalings(made.repeats(1), made.repeats(1, ranks=2), made.repeats(1, ranks=2, work=STRONG))
    assert [(curve.kind, curve.base.ranks, curve.largest.row.scaling) for curve in found.curves] == [
        ("weak", 1, "weak"),
        ("strong", 1, "strong"),
    ]
    assert not found.alone
    without = scalings(made.repeats(1, ranks=2), made.repeats(1, ranks=4, work=STRONG))
    assert not without.curves and len(without.alone) == 2


def test_eta_above_one_is_flagged_and_kept_and_one_run_alone_gives_no_interval_of_phases() -> None:
    (curve,) = scalings(made.repeats(1, rate=10), made.repeats(1, rate=23, ranks=2)).curves
    assert curve.largest.above_one and curve.largest.eta.value > 1
    assert {eta.low for _, eta in curve.largest.phase_eta} == {None}


def test_every_curve_has_one_base_the_fewest_ranks() -> None:
    (curve,) = scalings(*(made.repeats(1, rate=10 * ranks**0.8, ranks=ranks) for ranks in (8, 2, 4))).curves
    assert curve.base.ranks == 2
    assert [point.row.ranks for point in curve.points] == [4, 8]


def tensor(ranks: int, degree: int) -> Layout:
    return Layout(devices_per_node=ranks, tensor=degree, data=ranks // degree, distributed_optimizer=True)


def test_runs_that_count_different_numbers_of_iterations_are_points_of_one_curve() -> None:
    short = made.repeats(3, backend="megatron", ranks=2, iterations=5)
    found = scalings(made.repeats(3, backend="megatron", iterations=9), short)
    assert [[point.row.ranks for point in curve.points] for curve in found.curves] == [[2]]
    assert [curve.base.ranks for curve in found.curves] == [1]


UNLIKE = {
    "strategy": {"layout": tensor(2, 2)},
    "workload": {"work": made.workload(prompt_tokens=32)},
    "size": {"size": "3M"},
    "track": {"track": "tuned"},
}


@pytest.mark.parametrize("changed", UNLIKE.values(), ids=UNLIKE)
def test_unlike_runs_share_no_curve(changed: dict) -> None:
    found = scalings(made.repeats(1, backend="megatron"), made.repeats(1, backend="megatron", ranks=2, **changed))
    assert not found.curves
    assert len(found.alone) == 2


def test_two_layouts_of_one_strategy_on_as_many_ranks_are_both_kept() -> None:
    wide = Layout(nodes=2, devices_per_node=1, data=2, zero_stage=2)
    found = scalings(made.repeats(1), made.repeats(1, ranks=2), made.repeats(1, ranks=2, layout=wide))
    assert [point.row.nodes for point in found.curves[0].points] == [1, 2]


def test_a_phase_that_took_no_time_or_is_not_told_has_no_eta() -> None:
    silent = {**made.SHARES, "reward": 0.0}
    (curve,) = scalings(made.repeats(3, rate=10), made.repeats(3, rate=16, ranks=2, shares=silent)).curves
    assert "reward" not in dict(curve.largest.phase_eta)
    assert "train" in dict(curve.largest.phase_eta)
