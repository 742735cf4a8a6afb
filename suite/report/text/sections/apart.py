"""Rows that no other row can be compared with, where the report compares others."""

from __future__ import annotations

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.formatting.grid import Column
from suite.report.text.columns import IDENTITY, Shown, rate, table_of, varying
from suite.report.text.section import Block, Section


def _blocks(model: ReportModel) -> Iterator[Block]:
    works = {row.work_hash for row in model.rows if row.measured}
    if not model.alone or not (model.ranking.groups or len(works) > 1):
        return
    columns: list[Shown] = [
        *IDENTITY,
        *varying(model.alone),
        (Column("work", False), lambda row: row.work_hash[:8]),
        (Column("samples/s [95 %]"), rate),
    ]
    yield "Not compared, because no other row did equal work on as many ranks under equal conditions:"
    yield table_of(columns, model.alone)


SECTION = Section(None, _blocks)
