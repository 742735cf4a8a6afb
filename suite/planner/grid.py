"""Tables of plain text that fit a terminal: what matters least is left out, outer cells are broken at words."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

_BETWEEN = "  "
#: first and last columns narrower than these are no longer read
_LEAST_FIRST, _LEAST_LAST = 16, 18
#: before a column is left out, the outer ones are broken to these widths
_FAIR_FIRST, _FAIR_LAST = 24, 18


class Column(NamedTuple):
    """A title and its cells. ``rank`` orders what is left out of a narrow terminal: the highest first, 0 never."""

    title: str
    cells: Sequence[str]
    rank: int = 0
    left: bool = False

    @property
    def width(self) -> int:
        return max(map(len, (self.title, *self.cells)))


def grid_lines(columns: Sequence[Column], most: int | None) -> Iterator[str]:
    """The lines of a table of at most ``most`` columns of text; ``None``: as wide as it comes.

    The first column is broken at words, and the last one too where it holds text (``left``).
    """
    shown = list(columns)
    while most is not None and _least_width(shown) > most and any(column.rank for column in shown):
        shown.remove(max(shown, key=lambda column: column.rank))
    first, last = _shares(shown, most)
    for row in range(-1, len(shown[0].cells)):
        texts = [column.title if row < 0 else column.cells[row] for column in shown]
        opening = _broken(texts[0], first)
        ending = _broken(texts[-1], last) if len(shown) > 1 and shown[-1].left else texts[-1:] * (len(shown) > 1)
        middle = [
            f"{text:<{column.width}}" if column.left else f"{text:>{column.width}}"
            for text, column in zip(texts[1:-1], shown[1:-1], strict=True)
        ]
        empty = [" " * len(text) for text in middle]
        for number, (left, right) in enumerate(zip_longest(opening, ending, fillvalue="")):
            ends = [f"{right:<{last}}" if shown[-1].left else f"{right:>{last}}"] if len(shown) > 1 else []
            yield _BETWEEN.join([f"{left:<{first}}", *(empty if number else middle), *ends]).rstrip()


def _broken(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="  ", break_on_hyphens=False) or [""]


def _shares(shown: Sequence[Column], most: int | None) -> tuple[int, int]:
    """Widths of the first and the last column: of those that have room, the pair that takes the fewest lines."""
    first, last = shown[0], shown[-1]
    if len(shown) == 1:
        return min(first.width, max(most or first.width, _LEAST_FIRST)), 0
    room = None if most is None else most - _width(shown) + first.width + last.width
    if room is None or first.width + last.width <= room:
        return first.width, last.width
    least = min(last.width, _LEAST_LAST) if last.left else last.width
    narrow = min(first.width, _LEAST_FIRST)
    pairs = [(room - width, width) for width in range(last.width, least - 1, -1) if room - width >= narrow]
    pairs = pairs or [(narrow, least)]
    return min(((min(first.width, one), two) for one, two in pairs), key=lambda pair: _lines(first, last, *pair))


def _lines(first: Column, last: Column, left: int, right: int) -> int:
    texts = zip((first.title, *first.cells), (last.title, *last.cells), strict=True)
    return sum(max(len(_broken(one, left)), len(_broken(two, right)) if last.left else 1) for one, two in texts)


def _least_width(columns: Sequence[Column]) -> int:
    """With both outer columns broken as far as they fairly can be."""
    first, last = columns[0], columns[-1]
    saved = max(first.width - _FAIR_FIRST, 0)
    if len(columns) > 1 and last.left:
        saved += max(last.width - _FAIR_LAST, 0)
    return _width(columns) - saved


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(_BETWEEN) * (len(columns) - 1)
