from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from suite.report.facts.entry import Entry
from suite.report.facts.model import ReportModel, build
from suite.report.terminal import headline_rows, print_headline
from tests.report import entries as made


def test_the_headline_has_a_line_per_row_with_the_same_titles() -> None:
    model = build([*made.matrix(sizes=("1M", "8M")), made.failed(size="25M")])
    lines = headline_rows(model)
    assert len(lines) == len(model.rows) == 9
    assert len({tuple(line) for line in lines}) == 1
    assert lines[-1]["samples/s [95 %]"] == "failed"
    assert lines[-1]["runs ok"] == "0 of 1"
    assert {line["eta"] for line in lines if line["ranks"] == "1"} == {"-"}


def test_the_headline_of_nothing_is_empty() -> None:
    assert headline_rows(build([])) == []


def test_the_headline_holds_no_control_characters() -> None:
    evil = made.entry(backend="a\x1b]0;owned\x07", size="b\nc")
    assert all(cell.isprintable() for line in headline_rows(build([evil])) for cell in line.values())


def test_a_verdict_from_too_few_runs_to_rank_says_so_on_the_terminal_too() -> None:
    def verdicts(runs: int) -> set[str]:
        model = build([*made.repeats(runs, rate=20), *made.repeats(runs, rate=30, backend="megatron")])
        return {row["verdict"] for row in headline_rows(model)}

    assert verdicts(3) == {"faster (provisional)", "slower (provisional)"}
    assert verdicts(5) == {"faster", "slower"}


@pytest.fixture
def columns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Lines that something prints on a terminal of so many columns; None: into a pipe."""

    def printed(count: int | None, show: Callable[[], None]) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(count or 20))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: count is not None)
        show()
        plain = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)
        return [line.rstrip() for line in plain.splitlines() if line.strip()]

    return printed


def engines_and_trainer() -> ReportModel:
    trainer = {"backend": "trlx-deepspeed", "kind": "trainer", "facts": made.TRAINER_FACTS}
    return build([*made.matrix(), *(one for ranks in (1, 2) for one in made.repeats(3, ranks=ranks, **trainer))])


@pytest.mark.parametrize("model", [build(made.matrix()), engines_and_trainer()], ids=["engines", "trainer"])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_headline_fits_a_terminal_a_line_per_row_and_no_word_is_cut(
    model: ReportModel, width: int, columns: Callable[..., list[str]]
) -> None:
    lines = columns(width, lambda: print_headline(model))
    text = "\n".join(lines)
    assert max(map(len, lines)) <= width and "…" not in text
    for row in headline_rows(model):
        identity = " ".join((row["size"], row["ranks"], row["backend"], row["layout"]))
        assert any(" ".join(line.split()).startswith(identity) and row["samples/s [95 %]"] in line for line in lines)


def test_what_a_narrow_headline_abbreviates_and_leaves_out_is_named_below_it(columns: Callable[..., list[str]]) -> None:
    text = " ".join(columns(80, lambda: print_headline(build(made.matrix()))))
    assert "unclear: not distinguishable" in text and "all verdicts are provisional: fewer than 5 runs" in text
    assert "not shown at 80 columns: runs ok, tokens/s" in text
    some = [*made.repeats(5), *made.repeats(5, rate=25, backend="megatron"), *made.repeats(2, size="3M")]
    some += made.repeats(3, rate=99, size="3M", backend="megatron", peak_factor=9000)
    text = " ".join(columns(80, lambda: print_headline(build([*some, *made.repeats(3, size="3M", track="tuned")]))))
    assert "too few: fewer than 3 runs" in text and "provisional" not in text


def test_a_narrow_headline_marks_rows_whose_runs_were_not_steady(columns: Callable[..., list[str]]) -> None:
    shaky = [made.entry(repeat=repeat, size="25M", verdict="drifting", rate=9) for repeat in range(1, 6)]
    model = build([*made.matrix(runs=5, sizes=("1M",)), *shaky, *made.repeats(5, size="25M", backend="megatron")])
    lines = columns(80, lambda: print_headline(model))
    assert max(map(len, lines)) <= 80
    (line,) = [line for line in lines if line.startswith("25M") and "deepspeed" in line]
    assert line.endswith("slower~") and "~: not all runs were steady" in " ".join(lines)


def test_a_narrow_headline_has_no_column_without_a_figure(columns: Callable[..., list[str]]) -> None:
    def head(*ranks: int) -> str:
        model = build(made.matrix(sizes=("1M",), ranks=ranks))
        return " ".join(columns(80, lambda: print_headline(model))[:2])

    assert " eta" in head(1, 2) and " eta" not in head(1)


def test_in_a_pipe_the_headline_is_whole(columns: Callable[..., list[str]]) -> None:
    lines = columns(None, lambda: print_headline(build(made.matrix())))
    assert lines == columns(200, lambda: print_headline(build(made.matrix())))
    for title in headline_rows(build(made.matrix()))[0]:
        assert title in lines[0]


def test_rows_that_only_their_launcher_tells_apart_are_told_apart() -> None:
    def launched(one: Entry, launcher: str) -> Entry:
        run = one.record.run.model_copy(update={"launcher": launcher, "id": f"{one.record.run.id}-{launcher}"})
        return replace(one, record=one.record.model_copy(update={"run": run}))

    slurm = [launched(one, "slurm") for one in made.repeats(3, rate=20)]
    rows = headline_rows(build([*made.repeats(3, rate=20), *slurm]))
    assert len(rows) == 2 and len({tuple(row.items()) for row in rows}) == 2
    assert all("launcher=" in row["variant"] for row in rows)
    assert "variant" not in headline_rows(build(made.repeats(3, rate=20)))[0]
