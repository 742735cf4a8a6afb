"""How wide the terminal is, and breaking plain text at words so that it fits."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TextIO

#: what a pipe or a log is taken to be as wide as, where a table needs a width
PIPE_COLUMNS = 160
UNBROKEN = "\N{NO-BREAK SPACE}"


def terminal_columns(stream: TextIO | None = None) -> int | None:
    """Columns of the terminal on ``stream`` (standard output), or of COLUMNS; ``None`` in a pipe or file: no break."""
    if "COLUMNS" in os.environ or (stream or sys.stdout).isatty():
        return max(40, shutil.get_terminal_size().columns)
    return None


def wrapped(text: str, columns: int | None, first: str = "", rest: str | None = None) -> list[str]:
    """``text`` in lines of at most ``columns``, if any, broken between words alone: a longer word keeps its line.
    ``first`` opens the first line and ``rest`` the others (default: spaces below ``first``)."""
    if columns is None:
        return [first + text.replace(UNBROKEN, " ")]
    after = " " * len(first) if rest is None else rest
    lines = textwrap.wrap(
        text, columns, initial_indent=first, subsequent_indent=after, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(UNBROKEN, " ") for line in lines] or [first.rstrip()]


def unbroken(words: Iterable[str]) -> str:
    """The words joined by commas, each of which ``wrapped`` keeps on one line."""
    return ", ".join(word.replace(" ", UNBROKEN) for word in words)
