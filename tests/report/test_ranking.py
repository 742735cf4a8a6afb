from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.facts.ranking import Ranking
from suite.report.text.markdown import render
from tests.report import entries as made


def ranking(*runs: list[Entry]) -> Ranking:
    return build([one for each in runs for one in each]).ranking


def test_the_faster_of_two_is_told_from_five_runs_each() -> None:
    (group,) = ranking(made.repeats(5, rate=20), made.repeats(5, rate=26, backend="megatron")).groups
    first, second = group.places
    assert (first.row.backend, first.verdict, second.verdict) == ("megatron", "faster", "slower")
    assert second.ratio.high < 1
    assert group.lead.value == pytest.approx(1 / second.ratio.value)
    assert not first.provisional and not second.provisional


def test_rates_within_their_noise_are_not_distinguishable() -> None:
    (group,) = ranking(made.repeats(5, rate=20), made.repeats(5, rate=20.01, backend="megatron")).groups
    assert [ranked.verdict for ranked in group.places] == ["not distinguishable"] * 2


@pytest.mark.parametrize(
    ("runs", "verdict", "provisional"),
    [
        (1, "too few runs", False),
        (2, "too few runs", False),
        (3, "slower", True),
        (4, "slower", True),
        (5, "slower", False),
    ],
)
def test_three_runs_publish_and_five_rank(runs: int, verdict: str, provisional: bool) -> None:
    (group,) = ranking(made.repeats(runs, rate=20), made.repeats(5, rate=26, backend="megatron")).groups
    assert (group.places[1].verdict, group.places[1].provisional) == (verdict, provisional)


def test_the_best_is_faster_only_if_it_is_faster_than_every_other() -> None:
    close = made.repeats(5, rate=25.99, backend="third")
    (group,) = ranking(made.repeats(5, rate=20), made.repeats(5, rate=26, backend="megatron"), close).groups
    assert group.places[0].verdict == "not distinguishable"
    assert group.places[2].verdict == "slower"


def test_more_rows_in_a_group_ask_for_more_of_a_difference() -> None:
    rows = [made.repeats(3, rate=20, spread=0.02), made.repeats(3, rate=21.3, spread=0.02, backend="megatron")]
    (two,) = ranking(*rows).groups
    others = [made.repeats(3, rate=20 + index / 10, spread=0.02, backend=f"b{index}") for index in range(6)]
    (many,) = ranking(*rows, *others).groups
    assert two.places[1].verdict == "slower"
    assert next(ranked for ranked in many.places if ranked.row.backend == "deepspeed").verdict == "not distinguishable"
    assert many.lead.low < 1


def at(times: list[float], **asked: object) -> list[Entry]:
    """Runs that started at these times."""
    runs = made.repeats(len(times), **asked)
    return [
        replace(run, record=run.record.model_copy(update={"run": run.record.run.model_copy(update={"started": time})}))
        for run, time in zip(runs, times, strict=True)
    ]


@pytest.mark.parametrize(
    ("first", "second", "in_turns"),
    [
        ([1.0, 4.0, 5.0], [2.0, 3.0, 6.0], True),
        ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], False),
        ([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], False),
        ([1.0], [4.0, 5.0], True),
    ],
)
def test_rows_whose_runs_did_not_take_turns_are_marked(first: list[float], second: list[float], in_turns: bool) -> None:
    model = build([*at(first, rate=20), *at(second, rate=26, backend="megatron")])
    assert [ranked.in_turns for ranked in model.ranking.groups[0].places] == [True, in_turns]
    assert ("not in turns" in render(model, {})) is not in_turns


OTHER = {
    "work": {"work": made.workload(prompt_tokens=32)},
    "rollouts": {"work": made.workload(rollouts=16)},
    "size": {"size": "3M"},
    "ranks": {"ranks": 2},
    "kind": {"kind": "trainer"},
    "track": {"track": "tuned"},
    "device": {"device": "cuda"},
}


@pytest.mark.parametrize("changed", OTHER.values(), ids=OTHER)
def test_unlike_rows_are_never_ranked_together(changed: dict) -> None:
    found = ranking(made.repeats(5), made.repeats(5, backend="megatron", rate=30, **changed))
    assert not found.groups
    assert len(found.apart) == 2


def test_every_group_is_of_equal_work_and_setting_in_a_mixed_report() -> None:
    changes = itertools.product(("deepspeed", "megatron"), ("smoke", "long"), (1, 2), ("engine", "trainer"))
    runs = [
        made.entry(
            backend=backend,
            ranks=ranks,
            kind=kind,
            work=made.workload(name, prompt_tokens=16 if name == "smoke" else 64),
        )
        for backend, name, ranks, kind in changes
    ]
    found = ranking(runs)
    assert len(found.groups) == 8
    for group in found.groups:
        assert len({ranked.row.work_hash for ranked in group.places}) == 1
        assert {ranked.row.setting for ranked in group.places} == {group.setting}


def test_a_workload_of_another_name_but_equal_work_is_ranked() -> None:
    (group,) = ranking(made.repeats(1), made.repeats(1, backend="megatron", work=made.workload("same-work"))).groups
    assert len(group.places) == 2


def test_failed_rows_take_no_place() -> None:
    found = ranking(made.repeats(1), [made.failed(backend="megatron")])
    assert not found.groups
    assert len(found.apart) == 1
