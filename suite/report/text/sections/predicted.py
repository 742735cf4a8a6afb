"""What the planner expected beside what was measured."""

from collections.abc import Iterator
from statistics import median

from suite.report.facts.costs import Expected
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import UNKNOWN, counted, interval, number, percent
from suite.report.text.columns import LABEL, label
from suite.report.text.section import Block, Picture, Section
from suite.spec.phases import ALL_NAMES


def _blocks(model: ReportModel) -> Iterator[Block]:
    rows = [(row, row.expected) for row in model.rows if row.expected is not None and row.samples_per_second]
    if not rows:
        return
    names = [name for name in ALL_NAMES if any(name in dict(expected.phases) for _, expected in rows)]
    columns = (
        LABEL[0],
        *(Column("samples/s"), Column("predicted [80 %]"), Column("measured / predicted")),
        *(Column(name) for name in names),
    )
    cells = tuple(
        (label(row), *_figures(row, expected), *(_phase(row, expected, name) for name in names))
        for row, expected in rows
    )
    yield Table(columns, cells)
    yield f"{_errors(rows)} The last columns are seconds of a phase over those predicted."


def _figures(row: Row, expected: Expected) -> tuple[str, str, str]:
    assert row.samples_per_second is not None, "chosen above"
    ratio = row.samples_per_second.value / expected.rate.value
    return number(row.samples_per_second.value), interval(expected.rate), number(ratio)


def _phase(row: Row, expected: Expected, name: str) -> str:
    cost = row.phase(name)
    predicted = dict(expected.phases).get(name)
    return UNKNOWN if cost is None or predicted is None else number(cost.seconds / predicted)


def _errors(rows: list[tuple[Row, Expected]]) -> str:
    """One sentence: how far off, and how many rows lie in their bands."""
    measured = [(row.samples_per_second.value, expected) for row, expected in rows if row.samples_per_second]
    off = [abs(value / expected.rate.value - 1) for value, expected in measured]
    text = f"Off by {percent(median(off))} % (median) and at most {percent(max(off))} %"
    banded = [
        (value, each.rate) for value, each in measured if each.rate.low is not None and each.rate.high is not None
    ]
    inside = sum((rate.low or 0) <= value <= (rate.high or 0) for value, rate in banded)
    return f"{text}; in their band: {inside} of {counted(len(banded), 'row')}." if banded else f"{text}."


SECTION = Section(
    "Predicted and measured",
    _blocks,
    Picture("predicted", "Predicted samples per second with their bands, and measured"),
    is_beside=True,
)
