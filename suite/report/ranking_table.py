"""The table of who is faster."""

from __future__ import annotations

from collections.abc import Sequence

from suite.report.escape import inline
from suite.report.grid import Column, Table
from suite.report.numbers import interval
from suite.report.parts import RUNS_TO_PUBLISH, RUNS_TO_RANK
from suite.report.ranking import Group, Place
from suite.report.tables import Shown, varying


def ranking_table(groups: Sequence[Group]) -> Table:
    """Groups of one setting, one after the other; size and ranks stand at the first row of each."""
    places = [(group, place) for group in groups for place in group.places]
    extra = varying([place.row for _, place in places])
    columns = (
        *(Column("size", False), Column("ranks")),
        *(Column(title, False) for title in ("row", "backend", "layout")),
        *(column for column, _ in extra),
        *(Column(title) for title in ("runs", "samples/s [95 %]", "ratio to best [95 %]")),
        Column("verdict", False),
    )
    rows = tuple(_ranked(group, place, extra) for group, place in places)
    notes = []
    if any(place.verdict == "too few runs" for _, place in places):
        notes.append(
            f"Too few runs: {RUNS_TO_PUBLISH} are needed to publish a figure and {RUNS_TO_RANK} to rank; "
            "the order shown is no result."
        )
    if any(place.provisional for _, place in places):
        notes.append(f"Provisional: {RUNS_TO_PUBLISH} runs are enough to publish, but it takes {RUNS_TO_RANK} to rank.")
    if any(not place.in_turns for _, place in places):
        notes.append(
            "Not in turns: all runs of this row came before or after those of the best, so what changed on the machine "
            "meanwhile is in their ratio."
        )
    return Table(columns, rows, tuple(notes))


def _ranked(group: Group, place: Place, extra: Sequence[Shown]) -> tuple[str, ...]:
    row, first = place.row, place is group.places[0]
    return (
        *((inline(group.size), str(group.ranks)) if first else ("", "")),
        *(row.name, inline(row.backend), row.layout),
        *(show(row) for _, show in extra),
        *(str(len(row.measured)), interval(row.samples_per_second)),
        "1" if first else interval(place.ratio, bound_digits=1),
        place.verdict + _remarks(place),
    )


def _remarks(place: Place) -> str:
    remarks = (["equal within 5 %"] if place.equivalent else []) + (["provisional"] if place.provisional else [])
    remarks += [] if place.in_turns else ["not in turns"]
    return f" ({', '.join(remarks)})" if remarks else ""
