"""Engines and trainers that were asked for the same work, with what each counted and without a verdict."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.facts.side_by_side import Side, SideBySide
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column, Table, grid
from suite.report.formatting.numbers import UNKNOWN, interval
from suite.report.text.section import Section

#: What both sides counted in one iteration: title -> field.
_COUNTED = {
    "samples": "samples",
    "response tokens": "response_tokens",
    "trained tokens": "trained_tokens",
    "optimizer steps": "optimizer_steps",
    "trainable parameters": "trainable_parameters",
}
_COLUMNS = (
    *(Column("size", False), Column("ranks")),
    *(Column(title, False) for title in ("row", "backend", "kind", "layout")),
    *(Column(title) for title in ("samples/s [95 %]", "over the fastest engine [95 %]")),
    *(Column(title) for title in _COUNTED),
)


def _blocks(model: ReportModel) -> Iterator[str]:
    cells = tuple(_cells(group, side) for group in model.beside for side in group.sides)
    if cells:
        yield "### Engines and trainers side by side"
        yield (
            "These rows were asked for equal work under equal conditions. An engine runs the suite's own iteration, a "
            "trainer its\nstack's. Where that does different work (see Work), the ratio includes the difference, so it "
            "is not a ranking."
        )
        yield grid(Table(_COLUMNS, cells))


def _cells(group: SideBySide, side: Side) -> tuple[str, ...]:
    row, first = side.row, side is group.sides[0]
    assert row.counts is not None, "a row with runs has counts"
    return (
        *((inline(group.size), str(group.ranks)) if first else ("", "")),
        *(row.name, inline(row.backend), row.setting.kind, row.layout, interval(row.samples_per_second)),
        "1" if side.ratio is None else interval(side.ratio, bound_digits=1),
        *(_count(getattr(row.counts, field)) for field in _COUNTED.values()),
    )


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


SECTION = Section(None, _blocks)
