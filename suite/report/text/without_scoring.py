"""DeepSpeed-Chat's own timing beside the whole iteration: it adds up generation and training alone."""

from __future__ import annotations

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import interval, number, percent
from suite.report.text.tables import IDENTITY, table_of

_KEPT = ("generate", "train")


def without_scoring(model: ReportModel) -> Table:
    """Rows of such work, both ways; no rows where nothing of it was measured."""
    columns = (
        (Column("samples/s [95 %]"), lambda row: interval(row.samples_per_second)),
        (Column("samples/s of generate + train"), _kept_rate),
        (Column("left out %"), _left_out),
    )
    return table_of([*IDENTITY, *columns], [row for row in model.rows if row.separate_critic and row.phases])


def _kept_seconds(row: Row) -> float | None:
    found = [phase.seconds for phase in row.phases if phase.name in _KEPT]
    return sum(found) if len(found) == len(_KEPT) else None


def _kept_rate(row: Row) -> str:
    seconds = _kept_seconds(row)
    return number(row.samples_per_iteration / seconds if seconds and row.samples_per_iteration else None)


def _left_out(row: Row) -> str:
    seconds = _kept_seconds(row)
    return percent(1.0 - seconds / row.iteration_seconds if seconds and row.iteration_seconds else None)
