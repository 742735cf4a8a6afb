"""Variances that rows share, rows of two modes, and seeds."""

from __future__ import annotations

import pytest

from suite.report.facts.model import build
from suite.report.terminal import headline_rows
from suite.report.text.markdown import render
from suite.stats.intervals import log_rates, pooled_rate
from suite.stats.moderated import FEWEST_ROWS, moderate
from tests.report import entries as made


def test_the_rows_of_a_folder_share_the_variance_of_their_runs() -> None:
    rows = build(made.matrix()).rows
    prior = moderate([log_rates(row.measured) for row in rows])
    assert prior is not None and {row.prior for row in rows} == {prior}
    for row in rows:
        assert row.samples_per_second == pooled_rate(row.measured, prior)
        assert row.tokens_per_second.high == pytest.approx(32 * row.samples_per_second.high)
        per_device = row.tokens_per_second_per_device
        assert per_device.low * row.ranks == pytest.approx(row.tokens_per_second.low)


def test_machines_share_nothing_and_few_rows_neither() -> None:
    sizes = ("1M", "3M", "8M")
    assert len(sizes) * 2 >= FEWEST_ROWS
    enough = made.matrix(sizes=sizes, ranks=(1,))
    assert {row.prior is None for row in build(enough).rows} == {False}
    assert {row.prior for row in build(made.matrix(sizes=sizes[:2], ranks=(1,))).rows} == {None}
    other = {**made.CPU_FACTS, "cpu": {"model": "Another CPU", "cores": 2, "threads": 2}}
    elsewhere = made.repeats(3, size="25M", facts=other)
    priors = {row.setting.machine: row.prior for row in build([*enough, *elsewhere]).rows}
    assert (priors["A"] is not None and priors["B"] is None) or (priors["B"] is not None and priors["A"] is None)


def test_a_row_with_a_slow_run_is_told_as_two_modes() -> None:
    slow = made.entry(repeat=5, rate=14)
    model = build([*made.repeats(4, rate=20), slow, *made.repeats(5, rate=26, backend="megatron")])
    found = {row.backend: row.two_modes for row in model.rows}
    assert found["megatron"] is None
    assert (found["deepspeed"].slow, found["deepspeed"].runs) == (1, 5)
    assert found["deepspeed"].loss == pytest.approx(0.3, abs=0.03)
    text = render(model, {})
    assert "two modes)" in text and "Two modes: some runs of this row" in text
    assert "1 of 5 runs is 30." in text or "1 of 5 runs is 29." in text
    assert "two modes" in {row["backend"]: row["verdict"] for row in headline_rows(model)}["deepspeed"]


def test_rows_that_differ_in_their_seed_alone_do_not_compete() -> None:
    both = [made.repeats(3, backend=backend, seed=seed) for seed in (1, 2) for backend in ("deepspeed", "megatron")]
    model = build([one for each in both for one in each])
    assert sorted(group.seed for group in model.ranking.groups) == [1, 2]
    for group in model.ranking.groups:
        assert [{place.row.backend for place in group.places}, {place.row.seed for place in group.places}] == [
            {"deepspeed", "megatron"},
            {group.seed},
        ]
    assert "Seeds: rows that differ in their seed alone" in render(model, {})
    alone = build([*both[0], *both[2]]).ranking
    assert alone.groups == () and len(alone.apart) == 2, "one backend is not ranked against itself"
    (group,) = build([*both[0], *both[3]]).ranking.groups
    assert group.seed is None, "two backends with a seed each did equal work"
