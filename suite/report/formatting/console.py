"""The terminal that tables are printed on."""

from __future__ import annotations

import sys

from rich.console import Console

from suite.report.formatting.width import PIPE_COLUMNS


def console() -> Console:
    """As wide as the terminal; in a pipe or a log wide enough that no cell is cut."""
    return Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS)
