from __future__ import annotations

import pytest

from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.facts.side_by_side import SideBySide
from tests.report import entries as made

TRLX = {"backend": "trlx-deepspeed", "kind": "trainer", "facts": made.TRAINER_FACTS}


def groups(*runs: list[Entry]) -> tuple[SideBySide, ...]:
    return build([one for each in runs for one in each]).beside


def test_an_engine_and_a_trainer_of_equal_work_stand_side_by_side_and_unranked() -> None:
    entries = [*made.repeats(3, rate=20), *made.repeats(3, rate=16, **TRLX)]
    model = build(entries)
    (group,) = model.beside
    engine, trainer = group.sides
    assert (engine.row.backend, trainer.row.backend) == ("deepspeed", "trlx-deepspeed")
    assert engine.ratio is None
    assert trainer.ratio.value == pytest.approx(0.8, rel=0.03)
    assert model.ranking.groups == ()


def test_the_fastest_engine_is_the_measure_even_where_a_trainer_is_faster() -> None:
    (group,) = groups(
        made.repeats(3, rate=20), made.repeats(3, rate=25, backend="megatron"), made.repeats(3, rate=30, **TRLX)
    )
    assert [side.row.backend for side in group.sides] == ["megatron", "deepspeed", "trlx-deepspeed"]
    assert group.sides[2].ratio.value > 1


@pytest.mark.parametrize(
    "other",
    [
        {"work": made.workload(new_tokens=32)},
        {"ranks": 2},
        {"track": "tuned"},
        {"size": "3M"},
    ],
    ids=["work", "ranks", "track", "size"],
)
def test_what_differs_in_work_or_conditions_stands_apart(other: dict) -> None:
    assert groups(made.repeats(3), made.repeats(3, **TRLX, **other)) == ()


def test_one_kind_alone_or_a_failed_trainer_has_nothing_beside_it() -> None:
    assert groups(made.repeats(3), made.repeats(3, backend="megatron")) == ()
    assert groups(made.repeats(3), [made.failed(backend="trlx-deepspeed", kind="trainer")]) == ()


def test_each_difference_in_work_is_told_once_with_its_rows() -> None:
    entries = [*made.repeats(2, **TRLX), *made.repeats(2, **TRLX, ranks=2), *made.repeats(2)]
    first, second = build(entries).work_differences
    assert first.text == made.TRAINER_FACTS["work_differences"][0]
    assert second.text == made.TRAINER_FACTS["work_differences"][1]
    assert first.backend == "trlx-deepspeed"
    assert len(first.rows) == 2


def test_parts_are_weighted_means_of_runs_that_all_tell_them() -> None:
    told = [made.entry(repeat=repeat, details={"train/forward": float(repeat)}, **TRLX) for repeat in (1, 2)]
    (row,) = build(told).rows
    assert [(part.name, part.seconds) for part in row.parts] == [("train/forward", 1.5)]
    (row,) = build([*told, made.entry(repeat=3, **TRLX)]).rows
    assert row.parts == ()
