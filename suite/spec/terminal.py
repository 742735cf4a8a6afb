"""Text on its way to a terminal: whatever wrote it, it is only shown, and moves, colours or reverses nothing."""

from __future__ import annotations

import sys


def plain(text: str) -> str:
    """The lines of a text with their spaces; every other character that is not printable is escaped or a space."""
    if text.isprintable():
        return text
    return "\n".join(line if line.isprintable() else "".join(map(_shown, line)) for line in text.split("\n"))


def say(text: object = "", err: bool = False) -> None:
    """Print lines, on standard output or on standard error. All that a command prints as text goes through here."""
    print(plain(str(text)), file=sys.stderr if err else sys.stdout, flush=True)


def _shown(char: str) -> str:
    return char if char.isprintable() else " " if char.isspace() else ascii(char)[1:-1]
