"""Rows that took turns, and whether those of a machine are compared by the differences within rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from suite.report.facts.noise import place_of
from suite.report.facts.pool import Row
from suite.stats.rounds import InTurns, Rounds, find_rounds

#: By machine and kind of device; null where rows there are compared as independent ones.
RoundsByPlace = dict[tuple[str, str], Rounds | None]


def rounds_of(groups: Sequence[Sequence[Row]]) -> RoundsByPlace:
    """For the machines of these groups of rows, each of which is compared within itself."""
    found: dict[tuple[str, str], list[Sequence[Row]]] = defaultdict(list)
    for group in groups:
        found[place_of(group[0])].append(group)
    return {
        place: find_rounds([[in_turns(row) for row in group] for group in alike], alike[0][0].prior)
        for place, alike in found.items()
    }


def in_turns(row: Row) -> InTurns:
    """The runs of the row that count, each with its turn."""
    return InTurns(row.measured, row.turns)
