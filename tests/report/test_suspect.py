"""Runs that something disturbed: shown beside their row, and in no rate, ranking or curve unless asked for."""

from __future__ import annotations

from suite.bundle.noise_model import Validity
from suite.report.facts.entry import Entry
from suite.report.facts.model import build
from suite.report.facts.suspect import usable
from suite.report.terminal import headline_rows
from suite.report.text.markdown import render
from suite.report.text.output import as_json
from suite.report.text.summary import sentences
from tests.report import entries as made

REASON = "others used {} of the 2 CPUs of rank 0, of which the run needs 1"


def doubtful(entry: Entry, reason: str = REASON.format("1.52"), status: str = "suspect") -> Entry:
    validity = Validity.model_validate({"status": status, "reasons": (reason,)})
    return made.recorded(entry, validity=validity)


def slow(repeat: int, **asked: object) -> Entry:
    return doubtful(made.entry(repeat=repeat, rate=5.0, **asked))


def test_a_suspect_run_is_in_no_rate_unless_asked_for_and_told_beside_its_row() -> None:
    quiet = made.repeats(3)
    alone, with_it = build(quiet), build([*quiet, slow(4)])
    (row,) = with_it.rows
    assert row.samples_per_second == alone.rows[0].samples_per_second
    assert (row.runs, row.runs_ok, row.runs_suspect, row.is_ranked) == (4, 4, 1, True)
    (line,) = with_it.caveats
    assert line.startswith("R1, deepspeed 1M: 1 suspect of 4 runs, left out of its figures: others used 1.52 of the 2")
    assert headline_rows(with_it)[0]["runs ok"] == "4 of 4, 1 suspect"
    assert "4 of 4, 1 suspect" in render(with_it, {})
    asked = build([*quiet, slow(4)], with_suspect=True)
    assert len(asked.rows[0].measured) == 4 and asked.rows[0].holds_suspect
    assert "in its figures, as asked for" in asked.caveats[0]


def test_a_row_of_suspect_runs_alone_keeps_its_figures_and_is_not_ranked() -> None:
    entries = [*made.repeats(5), *made.repeats(5, backend="megatron", rate=30.0)]
    entries += [slow(repeat, backend="trlx-deepspeed") for repeat in range(1, 6)]
    model = build(entries)
    by_backend = {row.backend: row for row in model.rows}
    assert by_backend["trlx-deepspeed"].samples_per_second is not None
    (group,) = model.ranking.groups
    assert {ranked.row.backend for ranked in group.places} == {"deepspeed", "megatron"}
    assert {cells["backend"]: cells["verdict"] for cells in headline_rows(model)}["trlx-deepspeed"] == "suspect"
    assert "1 configuration of suspect runs alone is not ranked" in sentences(model)[1]
    asked = build(entries, with_suspect=True)
    assert len(asked.ranking.groups[0].places) == 3
    verdicts = {cells["backend"]: cells["verdict"] for cells in headline_rows(asked)}
    assert "suspect runs" in verdicts["trlx-deepspeed"]
    assert "suspect runs" in render(asked, {})


def test_a_scaling_curve_has_no_suspect_point() -> None:
    entries = [*made.repeats(3), *made.repeats(3, ranks=2, rate=36.0)]
    assert build(entries).scaling.curves
    assert not build([*entries[:3], *map(doubtful, entries[3:])]).scaling.curves


def test_where_all_are_suspect_the_report_says_so_and_equal_reasons_are_told_once() -> None:
    runs = [doubtful(made.entry(repeat=repeat), REASON.format(f"1.{repeat}")) for repeat in (1, 2, 3)]
    model = build([*runs, *(slow(repeat, backend="megatron") for repeat in (1, 2, 3))])
    assert "All runs are suspect, so nothing is ranked" in sentences(model)[1]
    assert "All runs are suspect, so nothing is ranked" in render(model, {})
    assert (model.rows[0].runs_suspect, as_json(model)["rows"][0]["runs_suspect"]) == (3, 3)
    assert model.rows[0].doubts == (f"{REASON.format('1.1')} (like this in 3 runs)",)


def test_an_invalid_run_is_in_no_figure_even_if_suspect_ones_are_asked_for() -> None:
    broken = doubtful(made.entry(repeat=2), "rank 0 tells 9 CPU seconds of its process in 1 s", "invalid")
    (row,) = build([made.entry(), broken], with_suspect=True).rows
    assert (len(row.measured), row.runs_invalid) == (1, 1)
    (row,) = build([broken], with_suspect=True).rows
    assert (row.measured, row.without_rate) == ((), "invalid")


def test_what_is_usable_for_a_comparison_is_what_nothing_speaks_against() -> None:
    quiet, noisy, broken = made.entry(), slow(2), doubtful(made.entry(repeat=3), status="invalid")
    assert usable([quiet, noisy, broken]).entries == [quiet]
    assert usable([quiet, noisy, broken], with_suspect=True).entries == [quiet, noisy]
    lines = usable([quiet, noisy, broken]).left_out
    assert [line.split(": ")[1] for line in lines] == [
        "left out, because it is suspect",
        "left out, because it is invalid",
    ]
