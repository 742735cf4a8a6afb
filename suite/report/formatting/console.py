"""The terminal that tables are printed on."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from suite.report.formatting.width import PIPE_COLUMNS, terminal_columns
from suite.spec.terminal import plain


def console() -> Console:
    """As wide as the terminal, or as COLUMNS says; in a pipe or a log wide enough that no cell is cut."""
    return Console() if terminal_columns() else Console(width=PIPE_COLUMNS)


def cell(text: object) -> str:
    """A cell of a table as it is: no markup of its own, and nothing that does more on a terminal than show."""
    return escape(plain(str(text)))
