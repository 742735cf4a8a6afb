"""The table of who is faster."""

from __future__ import annotations

from collections.abc import Sequence

from suite.report.facts.entry import RUNS_TO_PUBLISH, RUNS_TO_RANK
from suite.report.facts.ranking import Group, RankedRow
from suite.report.formatting.escape import inline
from suite.report.formatting.grid import Column, Table
from suite.report.formatting.numbers import interval
from suite.report.text.tables import Shown, varying


def ranking_table(groups: Sequence[Group]) -> Table:
    """Groups of one setting, one after the other; size and ranks stand at the first row of each."""
    places = [(group, ranked) for group in groups for ranked in group.places]
    extra = varying([ranked.row for _, ranked in places])
    columns = (
        *(Column("size", False), Column("ranks")),
        *(Column(title, False) for title in ("row", "backend", "layout")),
        *(column for column, _ in extra),
        *(Column(title) for title in ("runs", "samples/s [95 %]", "ratio to best [95 %]")),
        Column("verdict", False),
    )
    rows = tuple(_ranked(group, ranked, extra) for group, ranked in places)
    notes = []
    if any(ranked.verdict == "too few runs" for _, ranked in places):
        notes.append(
            f"Too few runs: {RUNS_TO_PUBLISH} are needed to publish a figure and {RUNS_TO_RANK} to rank; "
            "the order shown is no result."
        )
    if any(ranked.provisional for _, ranked in places):
        notes.append(f"Provisional: {RUNS_TO_PUBLISH} runs are enough to publish, but it takes {RUNS_TO_RANK} to rank.")
    if any(not ranked.in_turns for _, ranked in places):
        notes.append(
            "Not in turns: all runs of this row came before or after those of the best, so what changed on the machine "
            "meanwhile is in their ratio."
        )
    return Table(columns, rows, tuple(notes))


def _ranked(group: Group, ranked: RankedRow, extra: Sequence[Shown]) -> tuple[str, ...]:
    row, first = ranked.row, ranked is group.places[0]
    return (
        *((inline(group.size), str(group.ranks)) if first else ("", "")),
        *(row.name, inline(row.backend), row.layout),
        *(show(row) for _, show in extra),
        *(str(len(row.measured)), interval(row.samples_per_second)),
        "1" if first else interval(ranked.ratio, bound_digits=1),
        ranked.verdict + _remarks(ranked),
    )


def _remarks(ranked: RankedRow) -> str:
    remarks = (["equal within 5 %"] if ranked.equivalent else []) + (["provisional"] if ranked.provisional else [])
    remarks += [] if ranked.in_turns else ["not in turns"]
    return f" ({', '.join(remarks)})" if remarks else ""
