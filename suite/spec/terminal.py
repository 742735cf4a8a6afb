"""What is told to a user: refusals in one line, and text that a terminal only shows, whatever wrote it."""

import sys
from collections.abc import Iterable
from typing import Literal

_told: Literal["errors", "notes", "everything"] = "notes"


class UsageError(ValueError):
    """Something the user asked for cannot be done: one line, exit code 2, no traceback."""


def printable(text: str) -> str:
    """One line that a terminal only shows: what would move its cursor, colour or reverse text is escaped."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in " ".join(text.split()))


def tell(what: Literal["errors", "notes", "everything"]) -> None:
    """What of ``note`` and ``detail`` is shown from now on: -q of a command tells errors alone, -v everything."""
    global _told
    _told = what


def is_quiet() -> bool:
    return _told == "errors"


def plain(text: str) -> str:
    """The lines of a text with their spaces; every other character that is not printable is escaped or a space."""
    if text.isprintable():
        return text
    return "\n".join(line if line.isprintable() else "".join(map(_shown, line)) for line in text.split("\n"))


def say(text: object = "", err: bool = False) -> None:
    """Print lines, on standard output or on standard error. All that a command prints as text goes through here."""
    print(plain(str(text)), file=sys.stderr if err else sys.stdout, flush=True)


def say_lines(lines: Iterable[object]) -> None:
    for line in lines:
        say(line)


def note(text: object) -> None:
    """Lines by the way, on standard error."""
    if _told != "errors":
        say(text, err=True)


def detail(text: object) -> None:
    """Lines on standard error for whoever wants to see what is done for a command."""
    if _told == "everything":
        say(text, err=True)


def _shown(char: str) -> str:
    return char if char.isprintable() else " " if char.isspace() else ascii(char)[1:-1]
