"""DeepSpeed-Chat's own figures beside the whole iteration: they add up generation and training alone."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.grid import Column
from suite.report.formatting.numbers import number, percent
from suite.report.text.columns import LABEL, Shown, rate, table_of
from suite.report.text.section import Block, Section

_KEPT = ("generate", "train")


def _blocks(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.separate_critic and row.phases and not row.setting.asynchronous]
    columns: tuple[Shown, ...] = (
        (Column("samples/s [95 %]"), rate),
        (Column("samples/s of generate + train"), _kept_rate),
        (Column("left out %"), _left_out),
    )
    if rows:
        yield "DeepSpeed-Chat's own figures add up generation and training and leave the scoring passes out. Both ways:"
        yield table_of([LABEL, *columns], rows)


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
