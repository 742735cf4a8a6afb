"""Where an iteration's time goes: by phase, and within phases where a backend times that."""

from collections.abc import Iterator

from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column
from suite.report.formatting.numbers import UNKNOWN, number, percent
from suite.report.text.columns import LABEL, seconds, table_of
from suite.report.text.section import Block, Picture, Section
from suite.spec.phases import ALL_NAMES

#: Columns that a trainer's timers give at most.
_MOST_PARTS = 40


def _blocks(model: ReportModel) -> Iterator[Block]:
    rows = [row for row in model.rows if row.phases]
    if rows:
        measured = {phase.name for row in rows for phase in row.phases}
        columns = [(Column(name), seconds(name, lambda row: row.phases)) for name in ALL_NAMES if name in measured]
        columns.append((Column("iteration"), lambda row: number(row.iteration_seconds)))
        yield "Seconds per iteration, and share of it in percent."
        if any(row.setting.asynchronous for row in rows):
            yield (
                "Of asynchronous rows the seconds of the side that trains, without shares; generate is what it waits "
                "for samples."
            )
        if any(row.idle for row in rows):
            columns.append((Column("idle %"), _idle))
            yield (
                "Idle: what ranks, on average, wait at the end of phases for the slowest one, barriers included, and "
                "the phase at whose end they wait longest."
            )
        yield table_of([LABEL, *columns], rows)
    rows = [row for row in model.rows if row.parts]
    if rows:
        names = list(dict.fromkeys(cost.name for row in rows for cost in row.parts))[:_MOST_PARTS]
        columns = [(Column(inline(name)), seconds(name, lambda row: row.parts)) for name in names]
        yield (
            "What trainers time within phases, in seconds per iteration of the slowest rank, and share of the "
            "iteration:"
        )
        yield table_of([LABEL, *columns], rows)


def _idle(row: Row) -> str:
    if row.idle is None:
        return UNKNOWN
    return percent(row.idle.share) + (f", {inline(row.idle.most)}" if row.idle.seconds else "")


SECTION = Section("Phases", _blocks, Picture("phases", "Share of an iteration by phase"))
