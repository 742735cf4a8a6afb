"""What every view opens with, who is faster and how sure, and that what a terminal shows fits it."""

import re
from typing import Any

import pytest

from suite.report.compare import compare_entries
from suite.report.comparing.model import Unjudged
from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.terminal import headline_rows, print_answer
from suite.report.text.answer import Verdict, as_lines, verdicts_of
from suite.report.text.comparison import MOST_LINES, print_comparison
from suite.report.text.markdown import brief, render
from suite.spec.layout import Layout
from tests.report import entries as made
from tests.report.conftest import Columns
from tests.report.reports import REPORTS, families
from tests.report.test_comparing import side
from tests.report.test_rows_in_doubt import slow

GENERATING = dict(made.SHARES, generate=0.55, train=0.27)
ZERO3 = Layout(devices_per_node=2, data=2, zero_stage=3)


def against(runs: int, others: int, **asked: Any) -> list[Entry]:
    """Runs of DeepSpeed at 20 samples/s, and of Megatron."""
    return [*made.repeats(runs, rate=20), *made.repeats(others, backend="megatron", **asked)]


def only(entries: list[Entry]) -> Verdict:
    (verdict,) = verdicts_of(build(entries))
    return verdict


@pytest.mark.parametrize(
    ("entries", "faster", "sure", "phase"),
    [
        (against(5, 5, rate=15, shares=GENERATING), "deepspeed over megatron", "clear, 5 runs", "generate (94 %)"),
        (against(5, 5, rate=15), "deepspeed over megatron", "clear, 5 runs", "-"),
        (against(5, 5, rate=20.5, spread=0.1), "deepspeed or megatron", "not distinguishable, 5 runs", "-"),
        (against(5, 5, rate=20.01, spread=0.001), "megatron or deepspeed", "equal within 5 %, 5 runs", "-"),
        (against(3, 4, rate=40), "megatron over deepspeed", "provisional, 3 runs", "-"),
        (against(2, 2, rate=40), "megatron or deepspeed", "too few runs, 2 runs", "-"),
        (against(5, 5, rate=40, verdict="drifting"), "megatron over deepspeed", "clear, 5 runs, unsteady", "-"),
        (
            made.repeats(5, ranks=2) + made.repeats(5, ranks=2, rate=30, layout=ZERO3),
            "deepspeed zero3 dp2 over deepspeed zero2 dp2",
            "clear, 5 runs",
            "-",
        ),
    ],
    ids=["a phase", "no phase", "noise", "equal", "few runs", "too few", "unsteady", "layouts"],
)
def test_a_verdict_is_as_sure_as_its_runs(entries: list[Entry], faster: str, sure: str, phase: str) -> None:
    verdict = only(entries)
    assert (verdict.faster, verdict.sure, verdict.phase) == (faster, sure, phase)


def test_of_three_rows_those_that_cannot_be_told_from_the_best_stand_with_it() -> None:
    third = made.repeats(5, rate=10, layout=Layout(devices_per_node=1, data=1, zero_stage=3))
    verdict = only([*against(5, 5, rate=20.2, spread=0.05), *third])
    assert verdict.faster.endswith("over deepspeed zero3") and " or " in verdict.faster
    assert verdict.confidence == "not distinguishable" and verdict.rows == "R1, R2, R3"


def test_one_run_has_no_bounds_anywhere() -> None:
    model = build([*against(1, 1, rate=40), made.entry(ranks=2, rate=35)])
    assert all(row.samples_per_second.low is None for row in model.rows)
    assert re.fullmatch(r"\d\.\d+", only(against(1, 1, rate=40)).by)
    text = render(model, {}).partition("## Throughput\n")[2].partition("\n## ")[0]
    assert len(re.findall(r"\| \d+\.\d \(1 run\) \|", text)) == 3 and not re.search(r"\d \[\d", text)


def test_settings_and_works_that_differ_are_named_and_others_are_not() -> None:
    assert {one.where for one in verdicts_of(build(made.matrix()))} == {""}
    assert {one.where for one in verdicts_of(build(families()))} == {"PPO on GPT-2", "GRPO on Llama"}
    trainers = made.repeats(5, backend="trlx-ddp", kind="trainer", rate=9)
    trainers += made.repeats(5, backend="trlx-deepspeed", kind="trainer", rate=6)
    (verdict,) = verdicts_of(build([*made.repeats(5), *trainers]))
    assert (verdict.where, verdict.faster) == ("kind trainer", "trlx-ddp over trlx-deepspeed")


def test_of_tuned_rows_a_studys_own_section_speaks_beside_rows_of_equal_config() -> None:
    tuned = made.repeats(3, rate=30, track="tuned") + made.repeats(3, rate=20, track="tuned", backend="megatron")
    assert [one.rows for one in verdicts_of(build([*against(3, 3, rate=40), *tuned]))] == ["R1, R2"]
    assert [one.faster for one in verdicts_of(build(tuned))] == ["deepspeed over megatron"]


def test_scaling_memory_and_cost_are_told_with_the_rows_that_have_them() -> None:
    weak = made.repeats(3, rate=10, spread=0.001) + made.repeats(3, rate=16, spread=0.001, ranks=2)
    *_, scaling, memory, cost, trust = as_lines(build([*weak, made.failed(size="25M"), slow(4)]))
    assert scaling.startswith("Scaling: weak, eta(2; 1) 0.8") and scaling.endswith("(R2 deepspeed 1M x2).")
    assert re.fullmatch(r"Memory: peak 1\.60 \(R\d .*\) to 1\.60 \(R\d .*\) times the theoretical floor\.", memory)
    assert re.fullmatch(r"Cost: \d+ \(R1 .*\) to 12\d \(R2 .*\) rank seconds for 1,000 samples\.", cost)
    assert trust == (
        "How far to trust this: 1 of 8 runs suspect, 1 left out, 0 of 3 rows unsteady, "
        "2 rows without another to compare, 1 failed."
    )


def test_where_nothing_is_ranked_it_says_why() -> None:
    assert "All runs are suspect, so nothing is ranked" in as_lines(build([slow(1), slow(2)]))[1]
    assert as_lines(build([made.failed()]))[1].startswith("No run succeeded")
    assert as_lines(build([made.entry()]))[1].startswith("No two rows of one kind did equal work")
    assert as_lines(build([]))[0] == "No run was found, so nothing was measured."


@pytest.mark.parametrize("name", REPORTS)
def test_whatever_was_measured_the_lines_are_sentences_of_figures(name: str) -> None:
    entries = REPORTS[name]()
    lines = as_lines(build(entries))
    well = sum(one.record.status == "ok" for one in entries)
    assert not entries or f"{well} of {len(entries)} run" in lines[0]
    assert lines[-1].endswith(f"{len(entries) - well} failed.")
    assert not {"None", "nan", "inf"} & {word for line in lines for word in re.split(r"[\s()\[\],]", line)}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("width", [80, 100])
def test_on_a_terminal_it_fits_and_no_word_is_cut(name: str, width: int, columns: Columns) -> None:
    lines = columns(width, lambda: print_answer(build(REPORTS[name]())))
    cut = [line for line in lines if len(line) > width or "…" in line]
    assert not cut or name == "hostile"


def test_a_comment_of_a_pull_request_is_the_head_of_the_report() -> None:
    model = build(made.matrix())
    head = render(model, {}).partition("\n## ")[0].strip()
    text, _, links = head.partition(" More: ")
    assert text[2:] == brief(model).strip()[4:] and "[Ranking](#ranking)" in links, "a comment has no sections"


def test_rows_that_only_their_launcher_tells_apart_are_told_apart() -> None:
    slurm = [made.started(one, launcher="slurm", id=f"{one.record.run.id}-slurm") for one in made.repeats(3)]
    rows = headline_rows(build([*made.repeats(3), *slurm]))
    assert len({tuple(row.items()) for row in rows}) == len(rows) == 2
    assert all("launcher=" in row["variant"] for row in rows)
    assert "variant" not in headline_rows(build(made.repeats(3)))[0]


def test_many_bundles_in_trouble_are_counted_and_only_some_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    trouble = [Unjudged(lack="altered", side="after", name=f"runs/{n}", detail="it differs") for n in range(48)]
    print_comparison(compare_entries(side(2), side(2, 11), left_out=trouble))
    lines = [line for line in capsys.readouterr().out.splitlines() if "runs/" in line or "48" in line or "43" in line]
    assert lines[0] == "altered (48):"
    assert len(lines) == 1 + MOST_LINES + 1 and "43 more" in lines[-1]
