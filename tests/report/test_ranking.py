from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from suite.conduct.running.outcome_line import outcome_line
from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.facts.ranking import Ranking
from suite.report.terminal import headline_rows
from suite.report.text.markdown import render
from suite.report.text.output import as_json
from suite.report.text.summary import sentences
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
    others = [made.repeats(3, rate=20 + index / 10, spread=0.02, backend=f"b{index}") for index in range(3)]
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


def wandering(start: float, rate: float, **asked: object) -> list[Entry]:
    """Five runs, a minute apart, on a machine that is up to a third slower in some of them."""
    speeds = (1.0, 0.7, 1.1, 0.75, 0.95)
    runs = [made.entry(repeat=repeat, rate=rate * speed, **asked) for repeat, speed in enumerate(speeds, start=1)]
    return [
        replace(run, record=run.record.model_copy(update={"run": run.record.run.model_copy(update={"started": time})}))
        for run, time in zip(runs, itertools.count(start, 60), strict=False)
    ]


def test_runs_of_one_round_are_compared_where_the_machine_wanders() -> None:
    rows = {ranks: {"ranks": ranks, "spread": 0.005} for ranks in (1, 2)}
    slow = [run for ranks, asked in rows.items() for run in wandering(20.0 * ranks, 20, **asked)]
    fast = [run for ranks, asked in rows.items() for run in wandering(10 + 20.0 * ranks, 21, backend="m", **asked)]
    model = build([*slow, *fast])
    for group in model.ranking.groups:
        best, other = group.places
        assert (best.verdict, other.verdict, best.paired_rounds, other.paired_rounds) == ("faster", "slower", None, 5)
        assert other.ratio.value == pytest.approx(20 / 21, rel=0.02) and group.lead.low > 1
        assert {one.paired_rounds for one in other.by_phase} == {5}
        assert best.row.samples_per_second.low < 0.9 * best.row.samples_per_second.value
        assert best.row.turns[0].plan == "0" * 64 + " local -"
    for curve in model.scaling.curves:
        assert [point.paired_rounds for point in curve.points] == [5]
        assert curve.points[0].eta.high < 1.05 * curve.points[0].eta.low
    assert any(line.startswith("Rounds: ") for line in model.conventions)
    assert as_json(model)["ranking"]["groups"][0]["places"][1]["paired_rounds"] == 5


def test_runs_of_other_launches_are_no_rounds() -> None:
    slow, fast = wandering(20, 20, spread=0.005), wandering(30, 21, backend="megatron", spread=0.005)
    elsewhere = [
        replace(
            run, record=run.record.model_copy(update={"run": run.record.run.model_copy(update={"launcher": "docker"})})
        )
        for run in fast
    ]
    assert [one.paired_rounds for one in ranking(slow, fast).groups[0].places] == [None, 5]
    (group,) = ranking(slow, elsewhere).groups
    assert [one.paired_rounds for one in group.places] == [None, None]
    assert not any(line.startswith("Rounds: ") for line in build([*slow, *elsewhere]).conventions)


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


SLOW_DECODING = {"generate": 0.55, "score": 0.06, "reference": 0.06, "reward": 0.005, "train": 0.3, "other": 0.025}


def test_each_main_phase_is_compared_with_the_best_beside_the_whole() -> None:
    slow = made.repeats(5, rate=15, backend="megatron", shares=SLOW_DECODING)
    (group,) = ranking(made.repeats(5, rate=20), slow).groups
    best, other = group.places
    assert (best.by_phase, best.difference) == ((), None)
    ratios = {one.name: one for one in other.by_phase}
    assert list(ratios) == ["generate", "score + reference", "train"]
    assert ratios["generate"].ratio.value == pytest.approx(other.ratio.value * 0.42 / 0.55)
    assert ratios["score + reference"].ratio.value == pytest.approx(other.ratio.value * 0.15 / 0.12)
    assert ratios["generate"].verdict == "slower"
    assert ratios["train"].verdict == "not distinguishable", "0.75 x 0.4 / 0.3 is 1"


def test_the_bounds_of_phases_are_wider_than_the_wholes_so_that_they_hold_together() -> None:
    (group,) = ranking(made.repeats(3, rate=20), made.repeats(3, rate=15, backend="megatron")).groups
    other = group.places[1]
    spans = [math.log(ratio.high / ratio.low) for ratio in (other.ratio, *(one.ratio for one in other.by_phase))]
    assert spans[1:] == pytest.approx([spans[1]] * 3), "every phase is the same share of every run"
    assert 1.4 * spans[0] < spans[1] < 2 * spans[0]


def test_a_difference_that_is_mostly_one_phase_is_told_with_its_share() -> None:
    slow = made.repeats(5, rate=15, backend="megatron", shares=SLOW_DECODING)
    model = build([*made.repeats(5, rate=20), *slow])
    found = model.ranking.groups[0].places[1].difference
    assert found.mostly == "generate" and found.is_mostly_one
    assert found.share == pytest.approx((0.55 / 15 - 0.42 / 20) / (1 / 15 - 1 / 20), rel=0.05)
    text = render(model, {})
    assert f"R2 takes {found.seconds:.3f} s longer per iteration than R1" in text and "% of that in generate." in text
    assert "mostly in generate" in sentences(model)[1]


def test_a_difference_of_all_phases_alike_or_of_noise_has_no_one_origin() -> None:
    alike = build([*made.repeats(5, rate=20), *made.repeats(5, rate=15, backend="megatron")])
    assert not alike.ranking.groups[0].places[1].difference.is_mostly_one
    noise = build([*made.repeats(5, rate=20), *made.repeats(5, rate=19.9, backend="megatron", shares=SLOW_DECODING)])
    assert noise.ranking.groups[0].places[1].verdict == "not distinguishable"
    for model in (alike, noise):
        assert "longer per iteration" not in render(model, {}) and "mostly in" not in sentences(model)[1]


def test_phases_from_too_few_runs_have_ratios_and_no_verdict() -> None:
    model = build([*made.repeats(2, rate=20), *made.repeats(2, rate=15, backend="megatron", shares=SLOW_DECODING)])
    assert {one.verdict for one in model.ranking.groups[0].places[1].by_phase} == {None}
    assert "longer per iteration" not in render(model, {})


@pytest.mark.parametrize("silent", [{"score": 0.0, "reference": 0.0}, {"score": None, "reference": None}])
def test_phases_that_took_no_time_or_are_not_told_on_one_side_are_not_compared(silent: dict) -> None:
    some = made.repeats(3, rate=20)
    blind = []
    for run in made.repeats(3, rate=15, backend="megatron"):
        phases = run.record.phases
        changed = {
            name: phase if phase is None else getattr(phases, name).model_copy(update={"seconds": phase})
            for name, phase in silent.items()
        }
        blind.append(replace(run, record=run.record.model_copy(update={"phases": phases.model_copy(update=changed)})))
    (group,) = ranking(some, blind).groups
    assert [one.name for one in group.places[1].by_phase] == ["generate", "train"]


def test_rows_whose_runs_are_not_steady_stay_and_are_marked() -> None:
    drifting = [made.entry(repeat=1, rate=26, backend="megatron", verdict="drifting")]
    drifting += [made.entry(repeat=one, rate=26, backend="megatron") for one in (2, 3, 4, 5)]
    model = build([*made.repeats(5, rate=20), *drifting])
    text = render(model, {})
    assert [ranked.row.unsteady_runs for ranked in model.ranking.groups[0].places] == [1, 0]
    assert "faster (unsteady)" in text and "Unsteady: iterations of some runs of this row" in text
    assert {row["verdict"] for row in headline_rows(model)} == {"faster (unsteady)", "slower"}
    assert "not all runs of 1 of the 2 ranked configurations were steady" in sentences(model)[1]
    steady = build([*made.repeats(5, rate=20), *made.repeats(5, rate=26, backend="megatron")])
    assert "unsteady" not in render(steady, {}).lower()
    assert "ranked configurations were" not in sentences(steady)[1]


def void(entry: Entry, *indices: int) -> Entry:
    """The run with optimizer steps skipped in these iterations."""
    record, counted = entry.record, len(entry.record.iterations.seconds) - 2 - len(indices)
    state = record.steady_state.model_copy(update={"iterations": counted})
    changes = {"void_iterations": indices, "steady_state": state}
    if not counted:
        changes |= {"throughput": None, "phases": None}
    return replace(entry, record=record.model_copy(update=changes))


def test_void_iterations_count_in_no_rate_and_are_told() -> None:
    whole = made.entry(backend="megatron")
    model = build([made.entry(), void(whole, 3, 7)])
    (row,) = [row for row in model.rows if row.backend == "megatron"]
    seconds = whole.record.iterations.seconds
    assert [run.seconds for run in row.measured] == [(seconds[2], *seconds[4:7])]
    assert "skipped in them (overflow at the loss scale): R2 (2)." in render(model, {})


def test_a_run_whose_iterations_are_all_void_takes_no_place() -> None:
    nothing = void(made.entry(backend="megatron"), *range(2, 8))
    assert outcome_line(nothing.record) == (
        "no rate: optimizer steps were skipped in all 6 iterations after the warm-up"
    )
    model = build([made.entry(), nothing])
    assert not model.ranking.groups
    assert "no valid iteration" in render(model, {})
    assert [row["samples/s [95 %]"] for row in headline_rows(model)][1] == "no valid iteration"
