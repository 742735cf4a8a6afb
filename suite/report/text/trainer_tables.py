"""Tables that only trainers fill: beside the engines, and what they time within phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from suite.report.facts.beside import Beside, Side
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN, interval, number, percent
from suite.report.text.tables import IDENTITY, table_of

#: What the sides of a comparison counted in one iteration: title -> field.
_COUNTED = {
    "samples": "samples",
    "response tokens": "response_tokens",
    "trained tokens": "trained_tokens",
    "optimizer steps": "optimizer_steps",
    "trainable parameters": "trainable_parameters",
}


def beside(groups: Sequence[Beside]) -> Table:
    """Engines and trainers asked for the same work, with what each counted; no verdict."""
    columns = (
        *(Column("size", False), Column("ranks")),
        *(Column(title, False) for title in ("row", "backend", "kind", "layout")),
        *(Column(title) for title in ("samples/s [95 %]", "over the fastest engine [95 %]")),
        *(Column(title) for title in _COUNTED),
    )
    sides = [(group, side) for group in groups for side in group.sides]
    return Table(columns, tuple(_beside(group, side) for group, side in sides))


def _beside(group: Beside, side: Side) -> tuple[str, ...]:
    row, first = side.row, side is group.sides[0]
    assert row.counts is not None, "a row with runs has counts"
    return (
        *((inline(group.size), str(group.ranks)) if first else ("", "")),
        *(row.name, inline(row.backend), row.setting.kind, row.layout, interval(row.samples_per_second)),
        "1" if side.ratio is None else interval(side.ratio, bound_digits=1),
        *(f"{getattr(row.counts, field):,}" for field in _COUNTED.values()),
    )


def parts(model: ReportModel) -> Table:
    """Seconds of what a backend times within its phases; a part of a phase that nobody tells has no column."""
    rows = [row for row in model.rows if row.parts]
    names = dict.fromkeys(part.name for row in rows for part in row.parts)
    return table_of([*IDENTITY, *((Column(inline(name)), _part_cell(name)) for name in names)], rows)


def _part_cell(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        cost = next((part for part in row.parts if part.name == name), None)
        return f"{number(cost.seconds)} ({percent(cost.share)} %)" if cost else UNKNOWN

    return cell
