"""The checks of ``event_fields.py`` over many values at once: what is usual is seen in a fraction of the time.

A column is what all events of a kind have under one name. Where a column is not as it must be, its events are checked
one by one, and the first that is wrong is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from types import NoneType
from typing import Any

from suite.bundle import event_fields
from suite.bundle.amounts import LEAST_SECONDS, MOST_COUNT, MOST_SECONDS
from suite.bundle.event_fields import FREE, HEAD, WORDS, Kind, is_moment
from suite.bundle.record import Counts

#: Whether each value of a column is right. Raises TypeError or KeyError for some that are not.
Column = Callable[[Sequence[Any]], bool]
_INTEGER, _NUMBER = frozenset((int,)), frozenset((int, float))
_counts = itemgetter(*Counts.model_fields)
_least_counts = itemgetter("samples", "response_tokens")


def _within(values: Sequence[Any], types: frozenset[type], least: float, most: float) -> bool:
    """Parsed JSON has no value that is no number, so that the least and the largest speak for all."""
    return types.issuperset(map(type, values)) and least <= min(values) and max(values) <= most


def _are_counts(values: Sequence[Any]) -> bool:
    return _within(values, _INTEGER, 0, MOST_COUNT)


def _are_bytes(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None] if NoneType in set(map(type, values)) else values
    return not known or _are_counts(known)


def _are_all_counts(values: Sequence[Any]) -> bool:
    return (
        {dict}.issuperset(map(type, values))
        and _are_counts(list(chain.from_iterable(map(_counts, values))))
        and min(chain.from_iterable(map(_least_counts, values))) > 0
    )


def _are_stats(values: Sequence[Any]) -> bool:
    if not {dict}.issuperset(map(type, values)):
        return False
    told = [part for part in chain.from_iterable(map(dict.values, values)) if part is not None]
    return not told or (_NUMBER.issuperset(map(type, told)) and min(told) > -1e30 and max(told) < 1e30)


def _one_of(names: Iterable[str]) -> Column:
    """What is equal to a text is one."""
    return frozenset(names).issuperset


_OF: dict[Callable[[Any], bool], Column] = {
    event_fields._is_count: _are_counts,
    event_fields._is_bytes: _are_bytes,
    event_fields._is_seconds: lambda values: _within(values, _NUMBER, 0, MOST_SECONDS),
    event_fields._is_iteration_seconds: lambda values: _within(values, _NUMBER, LEAST_SECONDS, MOST_SECONDS),
    event_fields._is_counts: _are_all_counts,
    event_fields._is_stats: _are_stats,
    is_moment: lambda values: _NUMBER.issuperset(map(type, values)) and min(values) >= 0 and max(values) < 1e11,
    **{is_one: _one_of(words) for is_one, words in WORDS.items()},
}


def column_of(is_right: Callable[[Any], bool]) -> Column:
    """The check of a value as one of a column that has some."""
    return _OF.get(is_right) or (lambda values: all(map(is_right, values)))


are_moments = column_of(is_moment)


class UsualKind:
    """A kind, ready to check all of its events together."""

    def __init__(self, kind: Kind) -> None:
        self._length = HEAD + len(kind.fields)
        # the head and these fields are all that there is, so free content is there only where it is one of them
        self._is_free = not {name for name, _ in kind.fields}.isdisjoint(FREE)
        self._columns = [(itemgetter(name), column_of(is_right)) for name, (is_right, _) in kind.fields]

    def are_usual(self, events: Sequence[dict[str, Any]]) -> bool:
        """Whether each has its fields as they must be, those of every event, and no others.

        ``events``: at least one, with the fields of every event. Raises TypeError or KeyError for some that have not.
        """
        return (
            not self._is_free
            and {self._length}.issuperset(map(len, events))
            and all(are_right(list(map(value, events))) for value, are_right in self._columns)
        )


#: Writer -> kind.
USUAL = {
    writer: {name: UsualKind(kind) for name, kind in kinds.items()} for writer, kinds in event_fields.FIELDS.items()
}
