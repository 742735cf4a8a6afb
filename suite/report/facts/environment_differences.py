"""What differs around the runs of two sides: a line for each fact of device, versions, launcher and machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from suite.bundle.record import Record
from suite.report.facts.environment import FIGURES, FactKind, apart, facts_of, figures_of, shown
from suite.report.facts.variants import image_ids
from suite.spec.base import Frozen


class EnvironmentDifference(Frozen):
    """A fact that is not the same on both sides, with the values of each; empty where a side does not tell it."""

    name: str
    kind: FactKind
    before: str
    after: str


def environment_differences(before: Sequence[Record], after: Sequence[Record]) -> tuple[EnvironmentDifference, ...]:
    """Over all records of each side, in the order in which a report lists the facts."""
    return tuple(_differences(before, after))


def _differences(before: Sequence[Record], after: Sequence[Record]) -> Iterator[EnvironmentDifference]:
    ids = image_ids((*before, *after))
    first, second = facts_of(before, ids), facts_of(after, ids)
    for name in dict.fromkeys((*first, *second)):
        kind, _ = first.get(name) or second[name]
        old, new = (", ".join(side[name][1]) if name in side else "" for side in (first, second))
        if old != new:
            yield EnvironmentDifference(name=name, kind=kind, before=old, after=new)
    earlier, later = figures_of(before), figures_of(after)
    for figure in FIGURES:
        if apart(figure, earlier[figure.name], later[figure.name]):
            texts = (shown(figure, side[figure.name]) for side in (earlier, later))
            yield EnvironmentDifference(name=figure.name, kind="state", before=next(texts), after=next(texts))
