"""The list of sections."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel, build
from suite.report.formatting.grid import Column
from suite.report.formatting.numbers import number
from suite.report.text.columns import LABEL, table_of
from suite.report.text.markdown import of_part, render
from suite.report.text.section import Block, Picture, Section, parts_of
from suite.report.text.sections import SECTIONS
from tests.report import entries as made


def slowest_phase(model: ReportModel) -> Iterator[Block]:
    """A toy section: figures of its own, made from the rows of the model."""
    rows = [row for row in model.rows if row.phases]
    slowest = (Column("slowest", False), lambda row: max(row.phases, key=lambda phase: phase.seconds).name)
    seconds = (Column("s"), lambda row: number(max(phase.seconds for phase in row.phases)))
    if rows:
        yield "The phase that takes longest."
        yield table_of([LABEL, slowest, seconds], rows)


TOY = Section("Slowest phase", slowest_phase, Picture("slowest", "Bars"))


def test_a_section_that_is_put_into_the_list_is_in_the_report_and_changes_nothing_else() -> None:
    model = build(made.matrix(sizes=("1M",), runs=1))
    text = render(model, {"slowest": "a b/slowest.svg"}, [*SECTIONS[:3], TOY, *SECTIONS[3:]])
    before, toy = text.split("## Slowest phase\n\n", 1)
    toy, after = toy.split("\n\n## Throughput", 1)
    picture, sentence, table = toy.split("\n\n")
    assert (picture, sentence) == ("![Bars](a%20b/slowest.svg)", "The phase that takes longest.")
    assert [line.split("|")[-3].strip() for line in table.splitlines()[2:]] == ["generate"] * len(model.rows)
    assert before + "## Throughput" + after == render(model, {})


def test_a_section_without_figures_leaves_no_heading_and_no_picture() -> None:
    assert parts_of(build([made.failed()]), [TOY]) == ()
    (part,) = parts_of(build([made.entry()]), [TOY])
    assert of_part(part, {})[1] == "The phase that takes longest.", "a plot that was not drawn"
