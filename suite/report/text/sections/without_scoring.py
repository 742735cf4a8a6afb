"""DeepSpeed-Chat's own figures beside the whole iteration: they add up generation and training alone."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.grid import Column, grid
from suite.report.formatting.numbers import interval, number, percent
from suite.report.text.columns import IDENTITY, Shown, table_of
from suite.report.text.section import Section

_KEPT = ("generate", "train")


def _blocks(model: ReportModel) -> Iterator[str]:
    rows = [row for row in model.rows if row.separate_critic and row.phases and not row.setting.asynchronous]
    columns: tuple[Shown, ...] = (
        (Column("samples/s [95 %]"), lambda row: interval(row.samples_per_second)),
        (Column("samples/s of generate + train"), _kept_rate),
        (Column("left out %"), _left_out),
    )
    if rows:
        yield "DeepSpeed-Chat's own figures add up generation and training and leave the scoring passes out. Both ways:"
        yield grid(table_of([*IDENTITY, *columns], rows))


def _kept_seconds(row: Row) -> float | None:
    found = [phase.seconds for phase in row.phases if phase.name in _KEPT]
    return sum(found) if len(found) == len(_KEPT) else None


def _kept_rate(row: Row) -> str:
    seconds = _kept_seconds(row)
    return number(row.samples_per_iteration / seconds if seconds and row.samples_per_iteration else None)


def _left_out(row: Row) -> str:
    seconds = _kept_seconds(row)
    return percent(1.0 - seconds / row.iteration_seconds if seconds and row.iteration_seconds else None)


SECTION = Section(None, _blocks)
