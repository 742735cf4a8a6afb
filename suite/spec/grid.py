"""Tables of plain text that fit a terminal: what matters least is left out, columns of text are broken at words."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

_GAP = 2
#: Columns of text are broken to this width before one is left out.
_FAIR = 22


class Column(NamedTuple):
    """A title and its cells; the highest ``rank`` is left out of a narrow terminal first, 0 never."""

    title: str
    cells: Sequence[str]
    rank: int = 0
    left: bool = False
    #: whether its text is never broken
    whole: bool = False

    @property
    def least(self) -> int:
        """As narrow as it fairly can be, with the gap after it."""
        width = max(map(len, (self.title, *self.cells)))
        return (min(width, _FAIR) if self.left and not self.whole else width) + _GAP


def grid_lines(columns: Sequence[Column], most: int | None) -> Iterator[str]:
    """The lines of a table of at most ``most`` columns of text, if any; what is ``-`` in every row has no column."""
    shown = [column for column in columns if set(column.cells) != {"-"}]
    for column in sorted(shown, key=lambda column: -column.rank):
        if most is None or not column.rank or sum(each.least for each in shown) - _GAP <= most:
            break
        shown.remove(column)
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    for column in shown:
        is_whole = column.whole or not column.left
        table.add_column(column.title, justify="left" if column.left else "right", no_wrap=is_whole, overflow="fold")
    for cells in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*cells)
    # With a height rich does not ask the terminal for its own size.
    screen = Console(width=most or 10_000, height=1, color_system=None, markup=False, emoji=False, highlight=False)
    with screen.capture() as captured:
        screen.print(table)
    for line in captured.get().splitlines():
        yield line.rstrip()
