"""Tables of finished cells, and their Markdown."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Column(NamedTuple):
    """A header, and whether its cells are figures, which are aligned to the right."""

    title: str
    right: bool = True


@dataclass(frozen=True)
class Table:
    """Columns, rows of equally many cells, and what a reader of the cells must know."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


class Notes:
    """Lettered notes below a table, each text once."""

    def __init__(self) -> None:
        self._letters: dict[str, str] = {}

    def mark(self, text: str) -> str:
        count = len(self._letters)
        return f"({self._letters.setdefault(text, 'abcdefghijklmnopqrstuvwxyz'[count % 26] * (count // 26 + 1))})"

    def __iter__(self) -> Iterator[str]:
        return (f"({letter}) {text}." for text, letter in self._letters.items())


def grid(table: Table, is_padded: bool = False) -> str:
    """A Markdown table with its notes as a list below. ``is_padded``: its source reads as a table too."""
    rights = [column.right for column in table.columns]
    lines = [[column.title for column in table.columns], *table.rows]
    widths = [max(map(len, cells)) if is_padded else 0 for cells in zip(*lines, strict=True)]
    rule = [("-" * max(2, width - right)) + ":" * right for width, right in zip(widths, rights, strict=True)]
    forms = [f"{{:{'>' if right else '<'}{width or ''}}}" for width, right in zip(widths, rights, strict=True)]
    form = f"| {' | '.join(forms)} |"
    text = "\n".join(form.format(*cells) for cells in (lines[0], rule, *lines[1:]))
    return "\n\n".join([text, *(["\n".join(f"- {note}" for note in table.notes)] if table.notes else [])])
