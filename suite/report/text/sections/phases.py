"""Where an iteration's time goes: by phase, and within phases where a backend times that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from suite.report.facts.costs import PhaseCost
from suite.report.facts.model import ReportModel
from suite.report.facts.pool import Row
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column, grid
from suite.report.formatting.numbers import UNKNOWN, interval, number, percent
from suite.report.text.columns import IDENTITY, table_of
from suite.report.text.section import Picture, Section
from suite.spec.phases import ALL_NAMES


def _blocks(model: ReportModel) -> Iterator[str]:
    rows = [row for row in model.rows if row.phases]
    if rows:
        measured = {phase.name for row in rows for phase in row.phases}
        columns = [(Column(name), _cell(name, lambda row: row.phases)) for name in ALL_NAMES if name in measured]
        columns.append((Column("iteration"), lambda row: number(row.iteration_seconds)))
        yield "Seconds per iteration [95 %], and share of it."
        if any(row.setting.asynchronous for row in rows):
            yield (
                "Of asynchronous rows the seconds of the side that trains, without shares: others generate meanwhile, "
                "and generate is what it waits for samples."
            )
        if any(row.idle for row in rows):
            columns.append((Column("idle %"), _idle))
            yield (
                "Idle: the part of the iteration that ranks, on average, wait at the end of phases for the slowest "
                "one (the barrier's own time is in it), and the phase at whose end they wait longest."
            )
        yield grid(table_of([*IDENTITY, *columns], rows))
    rows = [row for row in model.rows if row.parts]
    if rows:
        names = dict.fromkeys(cost.name for row in rows for cost in row.parts)
        columns = [(Column(inline(name)), _cell(name, lambda row: row.parts)) for name in names]
        yield (
            "What trainers time within phases, in seconds per iteration of the slowest rank [95 %], and share of the "
            "iteration:"
        )
        yield grid(table_of([*IDENTITY, *columns], rows))


def _idle(row: Row) -> str:
    if row.idle is None:
        return UNKNOWN
    return percent(row.idle.share) + (f", most in {inline(row.idle.most)}" if row.idle.seconds else "")


def _cell(name: str, costs: Callable[[Row], Sequence[PhaseCost]]) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        cost = next((cost for cost in costs(row) if cost.name == name), None)
        if cost is None:
            return UNKNOWN
        share = "" if cost.share is None else f" ({percent(cost.share)} %)"
        return interval(cost.interval, bound_digits=1) + share

    return cell


SECTION = Section("Phases", _blocks, Picture("phases", "Share of an iteration by phase"))
