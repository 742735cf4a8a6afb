"""Rows of asynchronous trainers: told with their periods, roles and staleness, in no order with synchronous ones."""

from __future__ import annotations

from typing import Any

import pytest

from suite.report.compare import compare_entries
from suite.report.facts.entry import Entry
from suite.report.facts.model import ReportModel, build
from suite.report.facts.pool import Row
from suite.report.plots import phases as bars
from suite.report.text.markdown import render
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from tests.report import entries as made
from tests.report.reports import PERIOD

SPLIT = {"devices_per_node": 2, "data": 1, "zero_stage": 2, "placement": "split", "generation_ranks": 1}
TRAINER: dict[str, Any] = {"backend": "openrlhf", "kind": "trainer", "ranks": 2, "shares": PERIOD}


def ahead(count: int = 5, rate: float = 7.0, bound: int = 1, busy: float = 0.8, **more: Any) -> list[Entry]:
    layout = Layout(**SPLIT, staleness=bound)
    told = {"overlap": made.steady(16 / rate, 2, busy), "staleness": 1, **more}
    return made.repeats(count, rate=rate, layout=layout, **told, **TRAINER)


def in_turn(count: int = 5, rate: float = 5.0) -> list[Entry]:
    return made.repeats(count, rate=rate, layout=Layout(**SPLIT), **TRAINER)


def row_of(model: ReportModel) -> Row:
    (found,) = [row for row in model.rows if row.setting.asynchronous]
    return found


def test_asynchronous_and_synchronous_rows_are_in_no_ranking_together_and_side_by_side() -> None:
    model = build([*in_turn(), *ahead()])
    assert model.ranking.groups == ()
    (group,) = model.beside
    assert [side.row.setting.asynchronous for side in group.sides] == [False, True]
    assert {side.ratio for side in group.sides} == {None}, "there is no engine to hold them against"
    text = render(model, {})
    assert "in no ranking with synchronous ones" not in text, "nothing is ranked at all"
    assert "to fastest engine" not in text
    assert "trainer (a)" in text
    assert "nothing is ranked" in text


def test_asynchronous_rows_are_ranked_among_themselves_by_whole_periods_alone() -> None:
    model = build([*ahead(), *ahead(rate=9.0, bound=2), *in_turn(), *made.repeats(5, ranks=2)])
    (group,) = model.ranking.groups
    assert group.setting.asynchronous
    assert [len(ranked.by_phase) for ranked in group.places] == [0, 0]
    assert {ranked.difference for ranked in group.places} == {None}
    text = render(model, {})
    assert "Asynchronous rows, which train on samples of older weights" in text
    assert "### Trainer backends (the stack's own trainer, asynchronous)" in text
    assert "stale samples" in text


def test_the_summary_tells_rankings_of_both_orders_apart() -> None:
    both = [*in_turn(), *made.repeats(5, rate=6.0, layout=Layout(**{**SPLIT, "zero_stage": 3}), **TRAINER)]
    text = render(build([*both, *ahead(), *ahead(rate=9.0, bound=2)]), {})
    summary = next(line for line in text.splitlines() if line.startswith("- On 2 ranks"))
    assert "(synchronous) openrlhf" in summary
    assert "(asynchronous) openrlhf" in summary


def test_what_a_row_tells_is_pooled_over_its_runs_and_is_nothing_where_one_tells_nothing() -> None:
    told = row_of(build([*ahead(1, busy=0.8), *ahead(1, busy=0.6, first=2)])).asynchronous
    assert told.bound == 1
    assert dict(told.staleness) == pytest.approx({0: 0.1, 1: 0.9})
    generation, training = told.roles
    assert (generation.name, generation.ranks) == ("generation", 1)
    assert generation.busy_share.value == pytest.approx(0.7)
    assert generation.busy_share.low < 0.7 < generation.busy_share.high <= 1
    assert generation.idle_share.value == pytest.approx(0.3)
    assert generation.idle_share.low == pytest.approx(1 - generation.busy_share.high)
    assert training.busy_share.value == pytest.approx(0.9)
    silent = build([*ahead(1), *ahead(1, first=2, overlap=None)])
    assert row_of(silent).asynchronous is None and "## Asynchronous trainers" not in render(silent, {})


def test_no_share_is_shown_or_drawn_of_phases_that_others_work_beside() -> None:
    model = build(ahead())
    assert {phase.share for phase in row_of(model).phases} == {None}
    assert row_of(model).idle is None
    assert bars.figure(model) is None
    both = build([*ahead(), *made.repeats(2, ranks=2)])
    labels = [text.get_text() for text in bars.figure(both).axes[0].get_yticklabels()]
    assert len(labels) == 1
    assert "deepspeed" in labels[0]
    phases = render(model, {}).split("## Phases\n", 1)[1].split("\n## ", 1)[0]
    assert "%)" not in phases
    assert "without shares" in phases


def test_a_curve_of_asynchronous_rows_has_no_eta_of_phases() -> None:
    three = Layout(**{**SPLIT, "devices_per_node": 3, "data": 2}, staleness=1)
    more = made.repeats(5, rate=12.0, layout=three, overlap=made.steady(2.0, 3), **TRAINER)
    (curve,) = build([*ahead(), *more]).scaling.curves
    assert curve.largest.phase_eta == ()
    assert curve.largest.eta.value > 0


def test_compare_pairs_no_asynchronous_row_with_a_synchronous_one() -> None:
    with pytest.raises(UsageError, match="layout zero2 split g1 / zero2 split g1 async1"):
        compare_entries(in_turn(), ahead())


def test_compare_gives_no_phase_of_a_period_a_share_of_the_change() -> None:
    (row,) = compare_entries(ahead(), ahead(rate=14.0)).rows
    assert row.verdict == "faster"
    assert {phase.share_of_change for phase in row.phases} == {None}
    (row,) = compare_entries(in_turn(), in_turn(rate=14.0)).rows
    assert None not in {phase.share_of_change for phase in row.phases}
