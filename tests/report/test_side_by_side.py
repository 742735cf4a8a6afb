"""Engines and trainers of equal work stand beside each other, with what a trainer did otherwise, and unranked."""

from __future__ import annotations

import pytest

from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.facts.side_by_side import Side, SideBySide
from suite.report.text.markdown import render
from suite.spec.layout import Layout
from tests.report import entries as made

TRLX = {"backend": "trlx-deepspeed", "kind": "trainer", "facts": made.TRAINER_FACTS}


def groups(*runs: list[Entry]) -> tuple[SideBySide, ...]:
    return build([one for each in runs for one in each]).beside


def test_engines_and_a_trainer_of_equal_work_stand_side_by_side_against_the_fastest_engine_unranked() -> None:
    engines = [*made.repeats(3, rate=20), *made.repeats(3, rate=25, backend="megatron")]
    for rate in (16, 30):
        model = build([*engines, *made.repeats(3, rate=rate, **TRLX)])
        (group,) = model.beside
        assert [side.row.backend for side in group.sides] == ["megatron", "deepspeed", "trlx-deepspeed"]
        assert group.sides[0].ratio is None and group.sides[2].ratio.value == pytest.approx(rate / 25, rel=0.03)
        assert {place.row.backend for one in model.ranking.groups for place in one.places} == {"deepspeed", "megatron"}


@pytest.mark.parametrize(
    "other", [{"work": made.workload(new_tokens=32)}, {"ranks": 2}, {"track": "tuned"}, {"size": "3M"}], ids=str
)
def test_what_differs_in_work_or_conditions_stands_apart(other: dict) -> None:
    assert groups(made.repeats(3), made.repeats(3, **TRLX, **other)) == ()


def test_one_kind_alone_or_a_failed_trainer_has_nothing_beside_it() -> None:
    assert groups(made.repeats(3), made.repeats(3, backend="megatron")) == ()
    assert groups(made.repeats(3), [made.failed(backend="trlx-deepspeed", kind="trainer")]) == ()


GRPO = {"work": made.grpo(lengths=None, new_tokens=16), "ranks": 2}
NO_SCORE = {name: share for name, share in made.SHARES.items() if name not in ("score", "reference")}
SCORE = {**NO_SCORE, "score": 0.1}
VLLM = Layout(devices_per_node=2, data=2, generation="vllm")


def trainer(backend: str, rate: float, **more: object) -> list[Entry]:
    return made.repeats(3, backend=backend, kind="trainer", rate=rate, **{"shares": SCORE, **GRPO, **more})


def side_of(group: SideBySide, backend: str) -> Side:
    return next(side for side in group.sides if side.row.backend == backend)


def test_trainers_that_counted_other_work_or_made_fewer_passes_are_not_ranked_together() -> None:
    same = [*trainer("verl", 5.0), *trainer("openrlhf", 4.0)]
    (group,) = build(same).ranking.groups
    assert [ranked.verdict for ranked in group.places] == ["faster", "slower"]
    for other in ({"counts": {"optimizer_steps": 2}}, {"counts": {"trained_tokens": 1}}, {"shares": NO_SCORE}):
        model = build([*same, *trainer("trl-grpo", 9.0, **other)])
        (group,) = model.ranking.groups
        assert {ranked.row.backend for ranked in group.places} == {"verl", "openrlhf"}
        (beside,) = model.beside
        assert [side.row.backend for side in beside.sides] == ["trl-grpo", "verl", "openrlhf"]


def test_what_a_row_did_otherwise_is_told_against_the_first_of_its_group() -> None:
    (group,) = groups(
        made.repeats(3, rate=20, shares=SCORE, **GRPO),
        trainer("trl-grpo", 9.0, shares=NO_SCORE),
        trainer("openrlhf", 4.0, counts={"optimizer_steps": 2, "trained_tokens": 500}),
        trainer("verl", 5.0),
    )
    assert side_of(group, "deepspeed").otherwise == side_of(group, "verl").otherwise == ()
    assert side_of(group, "trl-grpo").otherwise == ("no score pass",)
    assert side_of(group, "openrlhf").otherwise == ("500 trained tokens, not 1,024", "2 optimizer steps, not 1")


def test_a_phase_that_others_have_is_missed_with_a_reason() -> None:
    facts = {
        **made.CPU_FACTS,
        "lacking_phases": {"score": "log-probs are those of generation", "nonsense": "x", "sync": 4},
    }
    (group,) = groups(
        made.repeats(3, rate=20, shares=SCORE, **GRPO),
        trainer("trl-grpo", 9.0, shares=NO_SCORE, facts=facts),
        trainer("trl-rloo", 8.0, shares=NO_SCORE, facts={**made.CPU_FACTS, "lacking_phases": ["score"]}),
        trainer("verl", 5.0, shares={"sync": 0.05, **SCORE}, layout=VLLM),
        trainer("openrlhf", 4.0, layout=VLLM),
    )
    assert group.phases == ("sync", "generate", "score", "reward", "train", "other")
    assert side_of(group, "verl").lacking == ()
    told, untold = dict(side_of(group, "trl-grpo").lacking), dict(side_of(group, "trl-rloo").lacking)
    assert told["score"] == "log-probs are those of generation"
    assert told["sync"] == "it generates on the weights that train, so none are sent"
    assert untold["score"].startswith("its trainer makes no such pass, or makes it within another phase")
    assert dict(side_of(group, "openrlhf").lacking)["sync"].startswith("its trainer makes no such pass")
    (group,) = groups(made.repeats(3, shares=SCORE, **GRPO), trainer("verl", 5.0, shares={**SCORE, "reference": 0.1}))
    assert dict(side_of(group, "deepspeed").lacking) == {"reference": "the suite's iteration of this work has none"}
    assert side_of(group, "verl").otherwise == ("a reference pass",)


def test_memory_is_the_same_measure_of_trainers_with_processes_of_their_own_as_of_all_others() -> None:
    model = build([*made.repeats(3, shares=SCORE, **GRPO), *trainer("verl", 5.0, resident_bytes=3 << 30)])
    engine, verl = (side.row for side in model.beside[0].sides)
    assert (verl.occupied_bytes, verl.memory.peak_is, verl.memory.floor_bytes) == (3 << 30, "all processes", None)
    assert engine.occupied_bytes == engine.memory.peak_bytes + (300 << 20), "with what was resident before the model"
    assert "- All processes, whole device: of trainers" in render(model, {})


def test_memory_of_ranks_that_only_generate_is_in_that_of_the_row() -> None:
    layout = Layout(devices_per_node=2, data=1, placement="split", generation_ranks=1, staleness=1)
    (row,) = build(trainer("openrlhf", 4.0, layout=layout, overlap=made.steady(2.0, 2), resident_bytes=1 << 20)).rows
    assert row.occupied_bytes == 600 << 20


def test_parts_are_weighted_means_of_runs_that_all_tell_them() -> None:
    told = [made.entry(repeat=repeat, details={"train/forward": float(repeat)}, **TRLX) for repeat in (1, 2)]
    (row,) = build(told).rows
    assert [(part.name, part.seconds) for part in row.parts] == [("train/forward", 1.5)]
    (row,) = build([*told, made.entry(repeat=3, **TRLX)]).rows
    assert row.parts == ()
