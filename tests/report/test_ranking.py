"""Rows of equal work against each other: which is faster, from how many runs, by what, and how rows scale."""

import math
from typing import Any

import pytest
from msgspec import structs

from suite.conduct.running.outcome_line import outcome_line
from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.facts.ranking import Group, Ranking
from suite.report.facts.scaling import Curve
from suite.report.terminal import headline_rows
from suite.report.text.answer import verdicts_of
from suite.report.text.markdown import render
from suite.spec.layout import Layout
from tests.report import entries as made

SLOW_DECODING = {"generate": 0.55, "score": 0.06, "reference": 0.06, "reward": 0.005, "train": 0.3, "other": 0.025}


def ranking(*runs: list[Entry]) -> Ranking:
    return build([one for each in runs for one in each]).ranking


def scalings(*runs: list[Entry]) -> tuple[Curve, ...]:
    return build([one for each in runs for one in each]).scaling


def group_of(*runs: list[Entry]) -> Group:
    (group,) = ranking(*runs).groups
    return group


def megatron(count: int = 5, **asked: Any) -> list[Entry]:
    return made.repeats(count, backend="megatron", **asked)


def at(times: list[float], runs: list[Entry]) -> list[Entry]:
    return [made.started(run, started=time) for run, time in zip(runs, times, strict=True)]


class TestVerdicts:
    @pytest.mark.parametrize(
        ("runs", "verdict", "provisional"),
        [(2, "too few runs", False), (3, "slower", True), (4, "slower", True), (5, "slower", False)],
    )
    def test_three_runs_publish_and_five_rank(self, runs: int, verdict: str, provisional: bool) -> None:
        group = group_of(made.repeats(runs, rate=20), megatron(rate=26))
        first, slower = group.places
        assert (first.row.backend, slower.verdict, slower.provisional) == ("megatron", verdict, provisional)
        assert group.lead.value == pytest.approx(1 / slower.ratio.value)

    def test_the_best_is_faster_only_if_it_is_faster_than_every_other(self) -> None:
        close = made.repeats(5, rate=25.99, backend="third")
        group = group_of(made.repeats(5, rate=20), megatron(rate=26), close)
        assert (group.places[0].verdict, group.places[2].verdict) == ("not distinguishable", "slower")

    def test_more_rows_in_a_group_ask_for_more_of_a_difference(self) -> None:
        rows = [made.repeats(3, rate=20, spread=0.02), megatron(3, rate=21.3, spread=0.02)]
        assert group_of(*rows).places[1].verdict == "slower"
        others = [made.repeats(3, rate=20 + index / 10, spread=0.02, backend=f"b{index}") for index in range(3)]
        many = group_of(*rows, *others)
        assert {one.row.backend: one.verdict for one in many.places}["deepspeed"] == "not distinguishable"
        assert many.lead.low < 1

    def test_the_best_is_ahead_by_the_ratio_that_is_told_of_it(self) -> None:
        far = [made.entry(rate=rate, repeat=repeat, spread=0) for repeat, rate in enumerate((120, 70), start=1)]
        model = build([*far, *megatron(2, rate=91, spread=0), made.entry(backend="trlx-nemo", kind="trainer")])
        (group,), (beside,) = model.ranking.groups, model.beside
        assert beside[0].row == group.places[0].row and group.places[0].row.backend == "deepspeed"
        assert group.lead.value == pytest.approx(math.sqrt(120 * 70) / 91)


class TestTurns:
    @pytest.mark.parametrize(
        ("first", "second", "in_turns"),
        [
            ([1.0, 4.0, 5.0], [2.0, 3.0, 6.0], True),
            ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], False),
            ([4.0, 5.0, 6.0], [1.0, 2.0, 3.0], False),
            ([1.0], [4.0, 5.0], True),
        ],
    )
    def test_rows_whose_runs_did_not_take_turns_are_marked(self, first, second, in_turns):
        runs = [*at(first, made.repeats(len(first), rate=20)), *at(second, megatron(len(second), rate=26))]
        model = build(runs)
        assert [ranked.in_turns for ranked in model.ranking.groups[0].places] == [True, in_turns]
        assert ("not in turns" in render(model, {})) is not in_turns

    @staticmethod
    def wandering(start: float, rate: float, **asked: Any) -> list[Entry]:
        """Five runs, a minute apart, on a machine that is up to a third slower in some of them."""
        speeds = enumerate((1.0, 0.7, 1.1, 0.75, 0.95), start=1)
        runs = [made.entry(repeat=repeat, rate=rate * speed, spread=0.005, **asked) for repeat, speed in speeds]
        return at([start + 60 * place for place in range(5)], runs)

    def test_runs_of_one_round_are_compared_where_the_machine_wanders(self) -> None:
        slow = [run for ranks in (1, 2) for run in self.wandering(20.0 * ranks, 20, ranks=ranks)]
        fast = [run for ranks in (1, 2) for run in self.wandering(10 + 20.0 * ranks, 21, ranks=ranks, backend="m")]
        model = build([*slow, *fast])
        for group in model.ranking.groups:
            best, other = group.places
            assert (best.verdict, best.paired_rounds) == ("faster", None)
            assert (other.verdict, other.paired_rounds) == ("slower", 5)
            assert other.ratio.value == pytest.approx(20 / 21, rel=0.02) and group.lead.low > 1
            assert best.row.samples_per_second.low < 0.9 * best.row.samples_per_second.value
            assert best.row.turns[0].plan.startswith("0" * 64 + " local ")
        for curve in model.scaling:
            assert [point.paired_rounds for point in curve.points] == [5]
            assert curve.points[0].eta.high < 1.05 * curve.points[0].eta.low
        assert any(line.startswith("Rounds: ") for line in model.conventions)

    def test_runs_of_other_launches_are_no_rounds(self) -> None:
        slow, fast = self.wandering(20, 20), self.wandering(30, 21, backend="megatron")
        elsewhere = [made.started(run, launcher="docker") for run in fast]
        assert [one.paired_rounds for one in group_of(slow, fast).places] == [None, 5]
        assert [one.paired_rounds for one in group_of(slow, elsewhere).places] == [None, None]


#: What sets rows apart; the layout by its ranks in a ranking, and by its strategy in a curve.
UNLIKE = {
    "work": {"work": made.workload(prompt_tokens=32)},
    "rollouts": {"work": made.workload(rollouts=16)},
    "size": {"size": "3M"},
    "kind": {"kind": "trainer"},
    "track": {"track": "tuned"},
    "device": {"device": "cuda"},
    "layout": {"layout": Layout(devices_per_node=2, tensor=2, data=1, distributed_optimizer=True)},
}


class TestGroups:
    @pytest.mark.parametrize("changed", UNLIKE.values(), ids=UNLIKE)
    def test_unlike_rows_are_in_no_ranking_and_on_no_curve_together(self, changed):
        found = ranking(made.repeats(5), megatron(rate=30, **changed))
        assert not found.groups and len(found.apart) == 2
        curves = scalings(megatron(1), megatron(1, **{"ranks": 2, **changed}))
        assert not curves

    def test_a_workload_of_another_name_but_equal_work_is_ranked_and_a_failed_row_is_not(self) -> None:
        assert len(group_of(made.repeats(1), megatron(1, work=made.workload("same-work"))).places) == 2
        found = ranking(made.repeats(1), [made.failed(backend="megatron")])
        assert not found.groups and len(found.apart) == 1


class TestPhases:
    def test_each_main_phase_is_compared_with_the_best_beside_the_whole(self) -> None:
        best, other = group_of(made.repeats(5, rate=20), megatron(rate=15, shares=SLOW_DECODING)).places
        assert (best.by_phase, best.difference) == ((), None)
        ratios = {one.name: one for one in other.by_phase}
        assert list(ratios) == ["generate", "score + reference", "train"]
        assert ratios["generate"].ratio.value == pytest.approx(other.ratio.value * 0.42 / 0.55)
        assert ratios["score + reference"].ratio.value == pytest.approx(other.ratio.value * 0.15 / 0.12)
        assert ratios["generate"].verdict == "slower"
        assert ratios["train"].verdict == "not distinguishable", "0.75 x 0.4 / 0.3 is 1"

    def test_the_bounds_of_phases_are_wider_than_the_wholes_so_that_they_hold_together(self) -> None:
        other = group_of(made.repeats(3, rate=20), megatron(3, rate=15)).places[1]
        spans = [math.log(ratio.high / ratio.low) for ratio in (other.ratio, *(one.ratio for one in other.by_phase))]
        assert spans[1:] == pytest.approx([spans[1]] * 3), "every phase is the same share of every run"
        assert 1.4 * spans[0] < spans[1] < 2 * spans[0]

    def test_a_difference_that_is_mostly_one_phase_is_told_with_its_share(self) -> None:
        model = build([*made.repeats(5, rate=20), *megatron(rate=15, shares=SLOW_DECODING)])
        found = model.ranking.groups[0].places[1].difference
        assert found.mostly == "generate"
        assert found.share == pytest.approx((0.55 / 15 - 0.42 / 20) / (1 / 15 - 1 / 20), rel=0.05)

    @pytest.mark.parametrize(
        ("slower", "verdict", "of_phases"),
        [
            (megatron(rate=15), "slower", {"slower"}),
            (megatron(rate=19.9, shares=SLOW_DECODING), "not distinguishable", {"slower", "faster"}),
            (megatron(2, rate=15, shares=SLOW_DECODING), "too few runs", {None}),
        ],
        ids=["all phases alike", "noise", "too few runs"],
    )
    def test_a_difference_of_no_one_phase_is_given_none(self, slower, verdict, of_phases):
        model = build([*made.repeats(5, rate=20), *slower])
        place = model.ranking.groups[0].places[1]
        assert (place.verdict, {one.verdict for one in place.by_phase}) == (verdict, of_phases)
        assert [one.phase for one in verdicts_of(model)] == ["-"]

    @pytest.mark.parametrize("took", [0.0, None], ids=["no time", "not told"])
    def test_phases_that_took_no_time_or_are_not_told_on_one_side_are_not_compared(self, took: float | None) -> None:
        blind = []
        for run in megatron(3, rate=15):
            phases = run.record.phases
            silent = None if took is None else structs.replace(phases.score, seconds=took)
            blind.append(made.recorded(run, phases=structs.replace(phases, score=silent, reference=silent)))
        other = group_of(made.repeats(3, rate=20), blind).places[1]
        assert [one.name for one in other.by_phase] == ["generate", "train"]


def void(entry: Entry, *indices: int) -> Entry:
    """The run with optimizer steps skipped in these iterations."""
    counted = len(entry.record.iterations.seconds) - 2 - len(indices)
    state = structs.replace(entry.record.steady_state, iterations=counted)
    without: dict[str, Any] = {} if counted else {"throughput": None, "phases": None}
    return made.recorded(entry, void_iterations=indices, steady_state=state, **without)


def test_void_iterations_count_in_no_rate_and_are_told() -> None:
    whole = made.entry(backend="megatron")
    model = build([made.entry(), void(whole, 3, 7)])
    (row,) = [row for row in model.rows if row.backend == "megatron"]
    seconds = whole.record.iterations.seconds
    assert [run.seconds for run in row.measured] == [(seconds[2], *seconds[4:7])]
    assert "skipped in them (overflow at the loss scale): R2 (2)." in render(model, {})


def test_a_run_whose_iterations_are_all_void_takes_no_place() -> None:
    nothing = void(made.entry(backend="megatron"), *range(2, 8))
    told = "no rate: optimizer steps were skipped in all 6 iterations after the warm-up"
    assert outcome_line(nothing.record) == told
    model = build([made.entry(), nothing])
    assert not model.ranking.groups
    assert "no valid iteration" in render(model, {})
    assert [row["samples/s [95 %]"] for row in headline_rows(model)][1] == "no valid iteration"


STRONG = made.workload(scaling="strong")


@pytest.mark.parametrize("kind", ["weak", "strong"])
def test_eta_is_the_rate_per_rank_over_that_of_the_fewest_ranks(kind: str) -> None:
    work = made.workload(scaling=kind)
    one, two = (made.repeats(3, rate=rate, ranks=ranks, work=work) for ranks, rate in ((1, 10), (2, 16)))
    (curve,) = scalings(one, two)
    assert (curve.kind, curve.base.ranks, curve.largest.row.ranks) == (kind, 1, 2)
    assert (curve.largest.eta.value, curve.largest.speedup.value) == pytest.approx((0.8, 1.6), rel=0.02)
    train = dict(curve.largest.phase_eta)["train"]
    assert train.low < train.value < train.high and train.value == pytest.approx(curve.largest.eta.value)
    assert train.low == pytest.approx(curve.largest.eta.low, rel=0.01), "every phase is the same share of every run"


def test_weak_and_strong_rows_are_curves_of_their_own_on_one_base_of_one_rank() -> None:
    found = scalings(made.repeats(1), made.repeats(1, ranks=2), made.repeats(1, ranks=2, work=STRONG))
    curves = [(curve.kind, curve.base.ranks, curve.largest.row.manifest.workload.scaling) for curve in found]
    assert curves == [("weak", 1, "weak"), ("strong", 1, "strong")]
    without = scalings(made.repeats(1, ranks=2), made.repeats(1, ranks=4, work=STRONG))
    assert not without


def test_eta_above_one_is_flagged_and_kept_and_one_run_alone_gives_no_interval_of_phases() -> None:
    (curve,) = scalings(made.repeats(1, rate=10), made.repeats(1, rate=23, ranks=2))
    assert curve.largest.above_one and curve.largest.eta.value > 1
    assert {eta.low for _, eta in curve.largest.phase_eta} == {None}


def test_every_curve_has_one_base_the_fewest_ranks() -> None:
    (curve,) = scalings(*(made.repeats(1, rate=10 * ranks**0.8, ranks=ranks) for ranks in (8, 2, 4)))
    assert curve.base.ranks == 2
    assert [point.row.ranks for point in curve.points] == [4, 8]


def test_runs_that_count_different_numbers_of_iterations_are_points_of_one_curve() -> None:
    short = made.repeats(3, backend="megatron", ranks=2, iterations=5)
    found = scalings(made.repeats(3, backend="megatron", iterations=9), short)
    assert [[point.row.ranks for point in curve.points] for curve in found] == [[2]]
    assert [curve.base.ranks for curve in found] == [1]


def test_two_layouts_of_one_strategy_on_as_many_ranks_are_both_kept() -> None:
    wide = Layout(nodes=2, devices_per_node=1, data=2, zero_stage=2)
    found = scalings(made.repeats(1), made.repeats(1, ranks=2), made.repeats(1, ranks=2, layout=wide))
    assert [point.row.manifest.layout.nodes for point in found[0].points] == [1, 2]


def test_a_phase_that_took_no_time_or_is_not_told_has_no_eta() -> None:
    silent = {**made.SHARES, "reward": 0.0}
    (curve,) = scalings(made.repeats(3, rate=10), made.repeats(3, rate=16, ranks=2, shares=silent))
    assert "reward" not in dict(curve.largest.phase_eta)
    assert "train" in dict(curve.largest.phase_eta)
