from __future__ import annotations

import json

from suite.report.facts.model import build
from suite.report.text.headline import as_json, rows
from suite.report.text.summary import sentences
from tests.report import entries as made


def test_the_headline_has_a_line_per_row_with_the_same_titles() -> None:
    model = build([*made.matrix(sizes=("1M", "8M")), made.failed(size="25M")])
    lines = rows(model)
    assert len(lines) == len(model.rows) == 9
    assert len({tuple(line) for line in lines}) == 1
    assert lines[-1]["samples/s [95 %]"] == "failed"
    assert lines[-1]["runs ok"] == "0 of 1"
    assert {line["eta"] for line in lines if line["ranks"] == "1"} == {"-"}


def test_the_headline_of_nothing_is_empty() -> None:
    assert rows(build([])) == []


def test_the_headline_holds_no_control_characters() -> None:
    evil = made.entry(backend="a\x1b]0;owned\x07", size="b\nc")
    assert all(cell.isprintable() for line in rows(build([evil])) for cell in line.values())


def test_json_holds_the_sentences_the_rows_and_refers_to_rows_by_number() -> None:
    model = build(made.matrix())
    told = json.loads(json.dumps(as_json(model), allow_nan=False))
    assert told["schema"] == "suite/report/1"
    assert tuple(told["summary"]) == sentences(model)
    assert [row["number"] for row in told["rows"]] == list(range(1, 17))
    assert {ranked["row"] for group in told["ranking"]["groups"] for ranked in group["places"]} == set(range(1, 17))
    assert told["scaling"]["curves"][0]["base"] == 1


def test_a_verdict_from_too_few_runs_to_rank_says_so_on_the_terminal_too() -> None:
    def verdicts(runs: int) -> set[str]:
        model = build([*made.repeats(runs, rate=20), *made.repeats(runs, rate=30, backend="megatron")])
        return {row["verdict"] for row in rows(model)}

    assert verdicts(3) == {"faster (provisional)", "slower (provisional)"}
    assert verdicts(5) == {"faster", "slower"}
