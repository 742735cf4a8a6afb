"""The headline table of a terminal: it fits, names what it abbreviates, and tells rows apart."""

from __future__ import annotations

import pytest

from suite.report.facts.model import ReportModel, build
from suite.report.terminal import headline_rows, print_headline
from tests.report import entries as made
from tests.report.conftest import Columns
from tests.report.reports import TRLX


def test_the_headline_has_a_line_per_row_with_the_same_titles() -> None:
    model = build([*made.matrix(sizes=("1M", "8M")), made.failed(size="25M")])
    lines = headline_rows(model)
    assert len(lines) == len(model.rows) == 9
    assert len({tuple(line) for line in lines}) == 1
    assert (lines[-1]["samples/s [95 %]"], lines[-1]["runs ok"]) == ("failed", "0 of 1")
    assert {line["eta"] for line in lines if line["ranks"] == "1"} == {"-"}
    assert headline_rows(build([])) == []


def test_the_headline_holds_no_control_characters() -> None:
    evil = made.entry(backend="a\x1b]0;owned\x07", size="b\nc")
    assert all(cell.isprintable() for line in headline_rows(build([evil])) for cell in line.values())


def engines_and_trainer() -> ReportModel:
    return build([*made.matrix(), *(one for ranks in (1, 2) for one in made.repeats(3, ranks=ranks, **TRLX))])


@pytest.mark.parametrize("model", [build(made.matrix()), engines_and_trainer()], ids=["engines", "trainer"])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_headline_fits_a_terminal_a_line_per_row_and_no_word_is_cut(
    model: ReportModel, width: int, columns: Columns
) -> None:
    lines = columns(width, lambda: print_headline(model))
    assert max(map(len, lines)) <= width and "…" not in "\n".join(lines)
    for row in headline_rows(model):
        identity = " ".join((row["size"], row["ranks"], row["backend"], row["layout"]))
        assert any(" ".join(line.split()).startswith(identity) and row["samples/s [95 %]"] in line for line in lines)


def test_what_a_narrow_headline_abbreviates_and_leaves_out_is_named_below_it(columns: Columns) -> None:
    text = " ".join(columns(80, lambda: print_headline(build(made.matrix()))))
    assert "unclear: not distinguishable" in text and "all verdicts are provisional: fewer than 5 runs" in text
    assert "not shown at 80 columns: runs ok, tokens/s" in text
    some = [*made.repeats(5), *made.repeats(5, rate=25, backend="megatron"), *made.repeats(2, size="3M")]
    some += made.repeats(3, rate=99, size="3M", backend="megatron", peak_factor=9000)
    text = " ".join(columns(80, lambda: print_headline(build([*some, *made.repeats(3, size="3M", track="tuned")]))))
    assert "too few: fewer than 3 runs" in text and "provisional" not in text


def test_a_narrow_headline_marks_rows_whose_runs_were_not_steady(columns: Columns) -> None:
    shaky = made.repeats(5, size="25M", verdict="drifting", rate=9)
    model = build([*made.matrix(runs=5, sizes=("1M",)), *shaky, *made.repeats(5, size="25M", backend="megatron")])
    lines = columns(80, lambda: print_headline(model))
    assert max(map(len, lines)) <= 80
    (line,) = [line for line in lines if line.startswith("25M") and "deepspeed" in line]
    assert line.endswith("slower~") and "~: not all runs were steady" in " ".join(lines)


def test_a_narrow_headline_has_no_column_without_a_figure(columns: Columns) -> None:
    for ranks, has_eta in (((1, 2), True), ((1,), False)):
        model = build(made.matrix(sizes=("1M",), ranks=ranks))
        head = columns(80, lambda model=model: print_headline(model))[:2]
        assert (" eta" in " ".join(head)) is has_eta


def test_in_a_pipe_the_headline_is_whole(columns: Columns) -> None:
    model = build(made.matrix())
    lines = columns(None, lambda: print_headline(model))
    assert lines == columns(200, lambda: print_headline(model))
    assert all(title in lines[0] for title in headline_rows(model)[0])


def test_rows_that_only_their_launcher_tells_apart_are_told_apart() -> None:
    slurm = [made.started(one, launcher="slurm", id=f"{one.record.run.id}-slurm") for one in made.repeats(3)]
    rows = headline_rows(build([*made.repeats(3), *slurm]))
    assert len({tuple(row.items()) for row in rows}) == len(rows) == 2
    assert all("launcher=" in row["variant"] for row in rows)
    assert "variant" not in headline_rows(build(made.repeats(3)))[0]
