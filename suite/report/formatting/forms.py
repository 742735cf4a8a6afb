"""A table on a terminal: in the widest of its forms that fits, with what that abbreviates and leaves out."""

from collections.abc import Sequence
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from suite.spec.base import printable
from suite.spec.terminal import plain
from suite.spec.width import PIPE_COLUMNS, terminal_columns

#: One row of a table, title -> plain text; all rows of a table have the same titles in the same order.
Cells = dict[str, str]
#: Columns of words; the others hold figures.
_WORDS = ("size", "backend", "layout", "variant", "phase", "rows")
_ANSWERS = ("verdict", "gate", "who is faster", "how sure", "mostly in")


def console() -> Console:
    """As wide as the terminal, or as COLUMNS says; in a pipe or a log wide enough that no cell is cut."""
    return Console() if terminal_columns() else Console(width=PIPE_COLUMNS)


class Form(NamedTuple):
    """A way to show a table, with the line that explains its abbreviations, and the columns it has no room for."""

    rows: Sequence[Cells]
    legend: str = ""
    left_out: tuple[str, ...] = ()
    compact: bool = True


def without(row: Cells, *titles: str) -> Cells:
    return {title: text for title, text in row.items() if title not in titles}


def print_widest(forms: Sequence[Form]) -> None:
    """The first form that fits the terminal, with what it abbreviates and leaves out; in a plain pipe the first."""
    screen = console()
    chosen = forms[0]
    if terminal_columns() is not None:
        unlimited = screen.options.update(width=10_000)
        fitting = (form for form in forms if screen.measure(_drawn(form), options=unlimited).maximum <= screen.width)
        chosen = next(fitting, forms[-1])
    screen.print(_drawn(chosen))
    if chosen.legend:
        print_line(chosen.legend)
    if chosen.left_out:
        print_line(f"not shown at {screen.width} columns: {', '.join(chosen.left_out)}")


def print_line(text: str) -> None:
    """A line that a terminal does not break within a word."""
    if terminal_columns() is not None:
        console().print(printable(text), markup=False, highlight=False)
    else:
        print(printable(text))


def _drawn(form: Form) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD, show_edge=not form.compact, pad_edge=not form.compact, collapse_padding=form.compact
    )
    for title in form.rows[0]:
        table.add_column(title, justify="left" if title in (*_WORDS, *_ANSWERS) else "right")
    for row in form.rows:
        # as they are: no markup of their own, and nothing that does more on a terminal than show
        table.add_row(*(escape(plain(text)) for text in row.values()))
    return table
