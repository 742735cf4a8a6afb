"""The terminal that tables are printed on."""

from __future__ import annotations

import sys

from rich.console import Console

PIPE_COLUMNS = 160


def console() -> Console:
    """As wide as the terminal; in a pipe or a log wide enough that no cell is cut."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS)
