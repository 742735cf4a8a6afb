"""A table of plain text that fits a terminal: what matters least is left out, and first cells are broken at words."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_BETWEEN = "  "
#: a first column narrower than this is no longer read
_LEAST_FIRST = 16


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
    """The lines of a table of at most ``most`` columns of text; ``None``: as wide as it comes."""
    shown = list(columns)
    while most is not None and _width(shown) > most and any(column.rank for column in shown):
        shown.remove(max(shown, key=lambda column: column.rank))
    first = shown[0].width
    if most is not None:
        first = min(first, max(most - _width(shown) + first, _LEAST_FIRST))
    for row in range(-1, len(shown[0].cells)):
        texts = [column.title if row < 0 else column.cells[row] for column in shown]
        lines = textwrap.wrap(texts[0], first, subsequent_indent="  ", break_on_hyphens=False) or [""]
        rest = [
            f"{text:<{column.width}}" if column.left else f"{text:>{column.width}}"
            for text, column in zip(texts[1:], shown[1:], strict=True)
        ]
        yield _BETWEEN.join([f"{lines[0]:<{first}}", *rest]).rstrip()
        yield from lines[1:]


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + len(_BETWEEN) * (len(columns) - 1)
