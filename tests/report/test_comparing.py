"""Two sides against each other: what pairs, what is judged together, what differs around, and what gates do."""

import math
import random
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from suite.report.compare import compare_entries, left_out, notes
from suite.report.comparing.gate import hold_to
from suite.report.comparing.judging import judge_together
from suite.report.comparing.model import ComparedRow, FolderComparison
from suite.report.facts.entry import Entry
from suite.report.reading import ALTERED, DAMAGED, RUNNING, Caveat
from suite.spec.base import UsageError
from suite.spec.layout import Layout
from suite.stats.intervals import RunSeconds
from tests.report import entries as made
from tests.report.test_rows_in_doubt import doubtful

SIZES = ("1M", "3M", "8M", "25M")
GRPO = made.workload(algorithm="grpo", group=4)


def side(runs: int, first: int = 1, **asked: Any) -> list[Entry]:
    return made.repeats(runs, first, **asked)


def compared(before: list[Entry], after: list[Entry]) -> ComparedRow:
    (row,) = compare_entries(before, after).rows
    return row


def lacks(result: FolderComparison) -> list[tuple[str, str | None]]:
    return [(one.lack, one.side) for one in result.unjudged]


def noisy(source: random.Random, runs: int, rate: float, spread: float) -> tuple[RunSeconds, ...]:
    return tuple(RunSeconds(1.0, (math.exp(source.gauss(-math.log(rate), spread)),)) for _ in range(runs))


class TestTogether:
    @pytest.mark.slow
    @pytest.mark.parametrize("spreads", [(0.03, 0.03), (0.01, 0.1)], ids=["alike", "very unlike"])
    def test_equal_sides_of_16_rows_show_a_difference_in_at_most_one_case_in_twenty(self, spreads):
        source = random.Random(21)
        trials, rows, false, alone = 400, 16, 0, 0
        for _ in range(trials):
            found = [math.exp(source.uniform(*map(math.log, spreads))) for _ in range(rows)]
            sides = [(noisy(source, 3, 1.0, one), noisy(source, 3, 1.0, one)) for one in found]
            judged = judge_together(sides, [None] * rows, [""] * rows)
            false += any(judged.family.positive)
            alone += any(one.probability <= 0.05 for one in judged.each)
        # 400 cases at 5 % are 31 or fewer in 99 of 100 simulations
        assert false <= 31
        assert alone > 0.28 * trials

    def test_an_interval_leaves_1_out_exactly_where_there_is_a_verdict(self) -> None:
        source = random.Random(23)
        before = [one for size in SIZES for one in side(4, size=size, spread=0.02)]
        after = [one for size in SIZES for one in side(4, 11, size=size, spread=0.02, rate=source.uniform(18, 22))]
        result = compare_entries(before, after)
        assert len(result.rows) == 4 and result.method == "Benjamini-Hochberg"
        for row in result.rows:
            assert row.low < row.ratio < row.high
            assert (row.low > 1 or row.high < 1) == (row.verdict != "not distinguishable")
        assert {row.verdict for row in result.rows} >= {"slower", "faster"}


class TestPhases:
    def test_the_phase_that_got_slower_is_found_with_its_share_of_the_change(self) -> None:
        slower = dict(made.SHARES, train=made.SHARES["train"] + 0.25)
        whole = sum(slower.values())
        shares = {name: share / whole for name, share in slower.items()}
        before, after = side(5, rate=20, spread=0.003), side(5, 11, rate=20 / whole, spread=0.003, shares=shares)
        row = compared(before, after)
        phases = {phase.name: phase for phase in row.phases}
        assert row.verdict == "slower"
        assert phases["train"].verdict == "slower" and phases["train"].share_of_change == pytest.approx(1, abs=0.1)
        assert phases["train"].after_seconds == pytest.approx(phases["train"].before_seconds * 0.65 / 0.4, rel=0.02)
        assert phases["train"].low < phases["train"].ratio < phases["train"].high < 1
        assert phases["generate"].verdict == "not distinguishable"
        assert sum(phase.share_of_change for phase in row.phases) == pytest.approx(1)

    def test_without_a_change_of_the_whole_no_phase_has_a_share_of_it(self) -> None:
        row = compared(side(4), side(4, 11))
        assert {phase.share_of_change for phase in row.phases} == {None}

    @pytest.mark.parametrize(("factor", "verdict"), [(1.8, "more"), (1.6, "not distinguishable")])
    def test_more_memory_is_more_even_where_every_run_has_the_same_peak(self, factor: float, verdict: str) -> None:
        memory = compared(side(3), side(3, 11, peak_factor=factor)).memory
        assert (memory.verdict, memory.of, memory.ratio) == (verdict, "resident", pytest.approx(factor / 1.6, rel=1e-6))

    def test_a_phase_of_one_side_alone_has_no_ratio(self) -> None:
        row = compared(side(3), side(3, 11, shares={**made.SHARES, "sync": 0.05}))
        sync = next(phase for phase in row.phases if phase.name == "sync")
        assert (sync.before_seconds, sync.ratio, sync.verdict) == (None, None, None)


class TestSurroundings:
    @pytest.mark.parametrize(
        ("facts", "label", "names"),
        [
            ({"cpu": {"model": "Other CPU", "cores": 4, "threads": 8}}, "across machines", {"CPU", "cores"}),
            ({"packages": {**made.CPU_FACTS["packages"], "torch": "2.14.0"}}, "across versions", {"torch"}),
            ({"kernel": "6.2.0", "memory_bytes": 32 << 30}, "across machines and versions", {"kernel", "host memory"}),
            ({"threads": {"torch": 2, "openmp": 2, "cpus": 2}}, "across", {"torch threads"}),
            ({"variables": {"OMP_NUM_THREADS": "2"}}, "across settings", {"OMP_NUM_THREADS"}),
            ({"host": "bench-2"}, "on another host of the same kind", {"host"}),
            ({"ceilings": {"matmul_flops": 4.0e10}}, "across states of the machine", {"measured matrix product"}),
            ({"idle": {"load": 12.0, "cpus": 2}}, "across", {"load per CPU at the start"}),
            ({"idle": {"load": 0.8, "cpus": 2}}, "like with like", set()),
        ],
        ids=["CPU", "torch", "kernel and memory", "threads", "variables", "host", "clocks", "load", "little load"],
    )
    def test_what_differs_names_the_comparison(self, facts: dict[str, Any], label: str, names: set[str]) -> None:
        quiet = {**made.CPU_FACTS, "idle": {"load": 0.3, "cpus": 2}}
        around = compare_entries(side(3, facts=quiet), side(3, 11, facts={**quiet, **facts})).surroundings
        assert around.label.startswith(label) and names <= {one.name for one in around.differences}
        assert all(one.before != one.after and one.rows for one in around.differences)

    def test_other_iterations_and_seeds_are_told(self) -> None:
        around = compare_entries(side(3), side(3, 11, iterations=8)).surroundings
        assert around.label == "across settings"
        assert [(one.name, one.before, one.after) for one in around.differences] == [("iterations", ("6",), ("8",))]
        assert compare_entries(side(3), side(3, 11, seed=7)).surroundings.label == "across seeds"


class TestPairing:
    def test_of_several_ways_those_pair_that_both_sides_have(self) -> None:
        before = [*side(3), *side(3, iterations=20)]
        result = compare_entries(before, [*side(3, 11), *side(3, 11, iterations=20, rate=10)])
        verdicts = {row.variant: row.verdict for row in result.rows}
        assert verdicts == {"iterations=6": "not distinguishable", "iterations=20": "slower"}
        assert not result.unjudged
        result = compare_entries(before, side(3, 11))
        assert len(result.rows) == 1 and lacks(result) == [("no partner", "before")]

    @pytest.mark.parametrize(
        ("before", "after", "told"),
        [
            (side(1), side(1, backend="megatron"), r"nearest are deepspeed 1M .*backend deepspeed / megatron"),
            ([*side(1), *side(1, size="8M")], side(1, track="tuned"), r"track equal-config / tuned$"),
            (side(1), [made.failed()], "no run of the second side has a rate"),
            (side(1), side(1, work=made.workload(ppo_epochs=2)), "ppo_epochs 1 / 2"),
            (side(1), side(1, work=GRPO), r"of equal backend, layout and work; nearest are .* work PPO .* / GRPO"),
        ],
    )
    def test_sides_that_share_no_row_say_what_keeps_the_nearest_apart(self, before, after, told):
        with pytest.raises(UsageError, match=told):
            compare_entries(before, after)

    def test_a_row_without_partner_names_its_nearest(self) -> None:
        layout = Layout(nodes=1, devices_per_node=1, data=1, zero_stage=3)
        result = compare_entries([*side(2), *side(2, size="8M")], [*side(2, 11), *side(2, size="8M", layout=layout)])
        assert lacks(result) == [("no partner", "before"), ("no partner", "after")]
        assert result.unjudged[0].detail == "nearest is deepspeed 8M zero3 on 1 rank: layout zero2 / zero3"


class TestLacking:
    def test_failed_rows_are_told_once_with_how_they_failed(self) -> None:
        after = [*side(2, 11), made.failed(size="3M", repeat=1), made.failed(size="3M", repeat=2)]
        result = compare_entries([*side(2), *side(2, size="3M")], after)
        (one,) = result.unjudged
        assert (one.lack, one.side) == ("failed", "after") and one.detail == "failed, 2 runs: oom_device"

    def test_a_row_some_of_whose_runs_failed_is_judged_and_told(self) -> None:
        result = compare_entries(side(3), [*side(3, 11), made.failed(repeat=20)])
        assert len(result.rows) == 1 and lacks(result) == [("failed", "after")]
        assert result.unjudged[0].detail == "1 of 4 runs: oom_device"

    def test_runs_that_doubt_themselves_are_told_with_their_reasons(self) -> None:
        after = side(3, 11)
        result = compare_entries(side(3), [*(doubtful(one, "load 12 on 2 CPUs") for one in after[:2]), after[2]])
        assert [(one.lack, one.detail) for one in result.unjudged] == [
            ("one run", "one run with a rate; at least 2 a side tell the spread between runs"),
            ("suspect", "2 of 3 runs: load 12 on 2 CPUs"),
        ]

    def test_copies_prove_nothing(self) -> None:
        runs = side(3)
        result = compare_entries(runs, runs)
        (row,) = result.rows
        assert lacks(result) == [("copies", None)] and "3 runs on both sides" in row.reason
        assert (row.verdict, row.equivalent, row.probability) == ("not distinguishable", None, None)
        one = made.entry(repeat=11, rate=10)
        twins = [made.started(one, id=f"copy-{repeat}", repeat=repeat, started=1e9 + repeat) for repeat in (12, 13)]
        result = compare_entries(runs, [one, *twins])
        assert lacks(result) == [("copies", None)] and "2 runs with the seconds of another" in result.rows[0].reason
        assert {phase.verdict for phase in result.rows[0].phases} == {None}

    def test_runs_of_equal_length_prove_nothing(self) -> None:
        def exact(rate: float, first: int) -> list[Entry]:
            """Runs of three iterations in another order each."""
            orders = [(1.0, 1.0, *(factor * 8 / rate for factor in one)) for one in ((0.5, 1, 1.5), (1, 0.5, 1.5))]
            return [
                made.recorded(one, iterations=structs.replace(one.record.iterations, seconds=seconds))
                for one, seconds in zip(side(2, first, iterations=3), orders, strict=True)
            ]

        row = compared(exact(20, 1), exact(19, 11))
        assert row.verdict == "not distinguishable" and "no spread" in row.reason


class TestGate:
    @staticmethod
    def at(gate: float, result: FolderComparison, **how: bool) -> tuple[list[str], bool]:
        result, outcome = hold_to(result, gate, **how)
        return [row.gate.outcome for row in result.rows], outcome.passed

    def test_rows_are_below_keep_to_it_or_are_undecided(self) -> None:
        before = [one for size in ("1M", "3M", "8M") for one in side(5, size=size, spread=0.002)]
        after = [
            *side(5, 11, size="1M", spread=0.002, rate=17),
            *side(5, 11, size="3M", spread=0.002, rate=19.9),
            *side(5, 11, size="8M", spread=0.08, rate=18.6),
        ]
        result = compare_entries(before, after)
        assert self.at(0.95, result) == (["below", "kept", "undecided"], False)
        assert self.at(0.8, result)[0] == ["kept", "kept", "kept"]

    @pytest.mark.slow
    def test_rows_at_the_gate_fail_it_in_at_most_one_case_in_twenty(self) -> None:
        source, blank = random.Random(31), compare_entries(side(2), side(2, 11))
        missed = sum(not hold_to(at_the_gate(source, blank), 0.95)[1].passed for _ in range(200))
        # 200 cases at 5 % are 18 or fewer in 99 of 100 simulations
        assert missed <= 18

    @pytest.mark.parametrize(("rate", "decided"), [(20, "met"), (10, "slower")])
    def test_suspect_runs_make_it_doubtful_unless_they_are_to_count(self, rate: float, decided: str) -> None:
        after = list(map(doubtful, side(4, 11, rate=rate)))
        found = hold_to(compare_entries(side(4), after), 0.8)[1]
        assert (found.outcome, found.doubts) == ("doubtful", ("suspect runs",))
        counting = compare_entries(side(4), [*after, *side(2, 21, rate=rate)], with_suspect=True)
        assert counting.rows[0].runs_after == 6 and not counting.unjudged
        assert hold_to(counting, 0.8, with_suspect=True)[1].outcome == decided

    def test_a_loss_as_large_as_the_gate_allows_is_one_where_the_gate_is_strict(self) -> None:
        result = compare_entries(side(6), side(6, 11, rate=19.4))
        assert 0.965 < result.rows[0].ratio < 0.975
        strict, lenient = hold_to(result, 0.97, strict=True)[1], hold_to(result, 0.97)[1]
        assert (strict.outcome, strict.missed, strict.lost) == ("slower", 0, 1)
        assert lenient.outcome == "met"


def at_the_gate(source: random.Random, blank: FolderComparison) -> FolderComparison:
    """16 rows of five runs a side whose true ratio is 0.95, at 5 % noise between runs."""
    sides = [(noisy(source, 5, 1.0, 0.05), noisy(source, 5, 0.95, 0.05)) for _ in range(16)]
    rows = []
    for one in judge_together(sides, [None] * 16, [""] * 16).each:
        told = {"runs_before": 5, "runs_after": 5, "ratio": one.ratio, "probability": one.probability}
        told |= {"log_error": one.difference.error, "degrees": one.difference.degrees}
        rows.append(blank.rows[0].model_copy(update=told))
    return blank.model_copy(update={"rows": tuple(rows)})


@pytest.mark.parametrize(
    ("kind", "leaves_out", "lack"),
    [
        (ALTERED, False, "altered"),
        (RUNNING, True, "running"),
        ("copied-run", True, "copies"),
        ("copied-seconds", True, "copies"),
        ("copied-rank", True, "inconsistent"),
        ("missing-repeat", False, "missing run"),
        ("overlapping-runs", False, None),
    ],
)
def test_every_bundle_that_reading_tells_of_is_sorted_by_what_is_lacking(kind, leaves_out, lack):
    """All twelve of them, of which a report shows five."""
    caveats = [Caveat(kind, f"runs/{number}", "why", leaves_out) for number in range(12)]
    found = SimpleNamespace(entries=[], caveats=[Caveat(DAMAGED, "runs/c", "no manifest", leaves_out=True), *caveats])
    nothing = SimpleNamespace(entries=[], caveats=[])
    first, *others = left_out(nothing, found)
    assert (first.lack, first.side, first.name) == ("damaged", "after", "runs/c")
    assert [(one.lack, one.name) for one in others] == ([(lack, each.path) for each in caveats] if lack else [])
    assert len(notes(nothing, found)) == (0 if lack else 6)


def test_a_trainer_that_counted_other_work_than_before_is_not_compared_with_itself() -> None:
    trainer = {"backend": "trl-grpo", "kind": "trainer"}
    before = [*side(3, **trainer), *side(3)]
    after = [*side(3, first=4, counts={"optimizer_steps": 2}, **trainer), *side(3, first=4)]
    result = compare_entries(before, after)
    assert [row.backend for row in result.rows] == ["deepspeed"]
    assert lacks(result) == [("no partner", "before"), ("no partner", "after")]
    assert all("trl-grpo" in one.detail and "optimizer steps, not" in one.detail for one in result.unjudged)
