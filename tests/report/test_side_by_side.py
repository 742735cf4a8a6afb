"""Engines and trainers stand beside each other unranked; asynchronous rows are in no order with synchronous ones."""

from typing import Any

import pytest
from msgspec import structs

from suite.bundle.parts import Peaks
from suite.report import charts
from suite.report.compare import compare_entries
from suite.report.facts.entry import Entry
from suite.report.facts.model import ReportModel, build
from suite.report.facts.pool import Row
from suite.report.facts.ranking import Side
from suite.report.plots.rows import figure
from suite.report.text.markdown import render
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from tests.report import entries as made
from tests.report.reports import PERIOD, steady

TRLX = {"backend": "trlx-deepspeed", "kind": "trainer", "facts": made.TRAINER_FACTS}


def groups(*runs: list[Entry]) -> tuple[tuple[Side, ...], ...]:
    return build([one for each in runs for one in each]).beside


def test_engines_and_a_trainer_of_equal_work_stand_side_by_side_against_the_fastest_engine_unranked() -> None:
    engines = [*made.repeats(3, rate=20), *made.repeats(3, rate=25, backend="megatron")]
    for rate in (16, 30):
        model = build([*engines, *made.repeats(3, rate=rate, **TRLX)])
        (group,) = model.beside
        assert [side.row.backend for side in group] == ["megatron", "deepspeed", "trlx-deepspeed"]
        assert group[0].ratio is None and group[2].ratio.value == pytest.approx(rate / 25, rel=0.03)
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


def resident(run: Entry, size: int) -> Entry:
    """All that is known of its memory is what is resident, as of a trainer with processes of its own."""
    unknown = dict.fromkeys((*Peaks.__struct_fields__, "efficiency", "efficiency_allocated"))
    told = {**unknown, "peak_resident_bytes": size, "by_phase": {}}
    return made.recorded(run, memory=structs.replace(run.record.memory, **told))


def side_of(group: tuple[Side, ...], backend: str) -> Side:
    return next(side for side in group if side.row.backend == backend)


def test_trainers_that_counted_other_work_or_made_fewer_passes_are_not_ranked_together() -> None:
    same = [*trainer("verl", 5.0), *trainer("openrlhf", 4.0)]
    (group,) = build(same).ranking.groups
    assert [ranked.verdict for ranked in group.places] == ["faster", "slower"]
    for other in ({"counts": {"optimizer_steps": 2}}, {"counts": {"trained_tokens": 1}}, {"shares": NO_SCORE}):
        model = build([*same, *trainer("trl-grpo", 9.0, **other)])
        (group,) = model.ranking.groups
        assert {ranked.row.backend for ranked in group.places} == {"verl", "openrlhf"}
        (beside,) = model.beside
        assert [side.row.backend for side in beside] == ["trl-grpo", "verl", "openrlhf"]


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
    lacking = {"score": "log-probs are those of generation", "nonsense": "x", "sync": 4}
    facts = {**made.CPU_FACTS, "lacking_phases": lacking}
    runs = [
        *made.repeats(3, rate=20, shares=SCORE, **GRPO),
        *trainer("trl-grpo", 9.0, shares=NO_SCORE, facts=facts),
        *trainer("trl-rloo", 8.0, shares=NO_SCORE, facts={**made.CPU_FACTS, "lacking_phases": ["score"]}),
        *trainer("verl", 5.0, shares={"sync": 0.05, **SCORE}, layout=VLLM),
    ]
    model = build(runs)
    (group,) = model.beside
    assert side_of(group, "trl-grpo").row.lacking_phases == {"score": "log-probs are those of generation"}
    assert side_of(group, "trl-rloo").row.lacking_phases == {}
    text = render(model, {})
    assert "No score: log-probs are those of generation" in text and "No sync" not in text
    (group,) = groups(made.repeats(3, shares=SCORE, **GRPO), trainer("verl", 5.0, shares={**SCORE, "reference": 0.1}))
    assert side_of(group, "verl").otherwise == ("a reference pass",)


def test_memory_is_the_same_measure_of_trainers_with_processes_of_their_own_as_of_all_others() -> None:
    trained = [resident(run, 3 << 30) for run in trainer("verl", 5.0)]
    model = build([*made.repeats(3, shares=SCORE, **GRPO), *trained])
    engine, verl = (side.row for side in model.beside[0])
    assert (verl.occupied_bytes, verl.memory.peak_is, verl.memory.floor_bytes) == (3 << 30, "all processes", None)
    assert engine.occupied_bytes == engine.memory.peak_bytes + (300 << 20), "with what was resident before the model"
    assert "- All processes, whole device: an even share" in render(model, {})


def test_memory_of_ranks_that_only_generate_is_in_that_of_the_row() -> None:
    layout = Layout(devices_per_node=2, data=1, placement="split", generation_ranks=1, staleness=1)
    runs = trainer("openrlhf", 4.0, layout=layout, overlap=steady(2.0, 2))
    (row,) = build([resident(run, 1 << 20) for run in runs]).rows
    assert row.occupied_bytes == 600 << 20


def test_parts_are_weighted_means_of_runs_that_all_tell_them() -> None:
    told = [made.entry(repeat=repeat, details={"train/forward": float(repeat)}, **TRLX) for repeat in (1, 2)]
    (row,) = build(told).rows
    assert [(part.name, part.seconds) for part in row.parts] == [("train/forward", 1.5)]
    (row,) = build([*told, made.entry(repeat=3, **TRLX)]).rows
    assert row.parts == ()


SPLIT = {"devices_per_node": 2, "data": 1, "zero_stage": 2, "placement": "split", "generation_ranks": 1}
TRAINER: dict[str, Any] = {"backend": "openrlhf", "kind": "trainer", "ranks": 2, "shares": PERIOD}


def ahead(count: int = 5, rate: float = 7.0, bound: int = 1, busy: float = 0.8, **more: Any) -> list[Entry]:
    layout = Layout(**SPLIT, staleness=bound)
    told = {"overlap": steady(16 / rate, 2, busy), "staleness": 1, **more}
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
    assert [side.row.setting.asynchronous for side in group] == [False, True]
    assert {side.ratio for side in group} == {None}, "there is no engine to hold them against"


def test_asynchronous_rows_are_ranked_among_themselves_by_whole_periods_alone() -> None:
    model = build([*ahead(), *ahead(rate=9.0, bound=2), *in_turn(), *made.repeats(5, ranks=2)])
    (group,) = model.ranking.groups
    assert group.best.setting.asynchronous
    assert [len(ranked.by_phase) for ranked in group.places] == [0, 0]
    assert {ranked.difference for ranked in group.places} == {None}
    assert "stale samples" in render(model, {})


def test_what_a_row_tells_is_pooled_over_its_runs_and_is_nothing_where_one_tells_nothing() -> None:
    told = row_of(build([*ahead(1, busy=0.8), *ahead(1, busy=0.6, first=2)])).rollout
    assert dict(told.ages) == pytest.approx({0: 0.1, 1: 0.9})
    generation, training = told.roles
    assert (generation.name, generation.ranks) == ("generation", 1)
    assert generation.busy_share.value == pytest.approx(0.7)
    assert generation.busy_share.low < 0.7 < generation.busy_share.high <= 1
    assert training.busy_share.value == pytest.approx(0.9)
    silent = build([*ahead(1), *ahead(1, first=2, overlap=None)])
    assert row_of(silent).rollout.roles == () and "## Asynchronous trainers" not in render(silent, {})


def test_no_share_is_shown_or_drawn_of_phases_that_others_work_beside() -> None:
    model = build(ahead())
    assert {phase.share for phase in row_of(model).phases} == {None}
    assert row_of(model).idle is None
    assert figure(charts.phases(model, "share"), model) is None
    phases = render(model, {}).split("## Phases\n", 1)[1].split("\n## ", 1)[0]
    assert "%)" not in phases


def test_a_curve_of_asynchronous_rows_has_no_eta_of_phases() -> None:
    three = Layout(**{**SPLIT, "devices_per_node": 3, "data": 2}, staleness=1)
    more = made.repeats(5, rate=12.0, layout=three, overlap=steady(2.0, 3), **TRAINER)
    (curve,) = build([*ahead(), *more]).scaling
    assert curve.largest.phase_eta == ()
    assert curve.largest.eta.value > 0


def test_compare_pairs_no_asynchronous_row_with_a_synchronous_one_and_gives_its_phases_no_share_of_the_change() -> None:
    with pytest.raises(UsageError, match="layout zero2 split g1 / zero2 split g1 async1"):
        compare_entries(in_turn(), ahead())
    (row,) = compare_entries(ahead(), ahead(rate=14.0)).rows
    assert row.verdict == "faster"
    assert {phase.share_of_change for phase in row.phases} == {None}
    (row,) = compare_entries(in_turn(), in_turn(rate=14.0)).rows
    assert None not in {phase.share_of_change for phase in row.phases}
