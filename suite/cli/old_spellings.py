"""Spellings of the release before: they work once more, with a line that says the new one. This file goes with it."""

from __future__ import annotations

from suite.spec.terminal import note


def todays_command(words: list[str]) -> list[str]:
    """`suite render LAUNCHER` as `suite submit LAUNCHER --output`."""
    if not words or words[0] != "render":
        return words
    named = any(word in ("-o", "--help", "-h") or word.startswith("--output") for word in words)
    _tell("suite render", "suite submit ... --output DIR (- prints)")
    return ["submit", *words[1:], *([] if named else ["--output", "-"])]


def todays_options(words: list[str]) -> list[str]:
    """``--precision`` as ``--until`` of a percentage, else ``--dtype``."""
    found: list[str] = []
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name != "--precision":
            found.append(word)
            continue
        value = value if equals else next(rest, "")
        option = "--until" if "%" in value else "--dtype"
        _tell(f"--precision {value}", f"{option} {value}")
        found.append(f"{option}={value}")
    return found


def _tell(old: str, new: str) -> None:
    note(f"note: {old} is now {new}; the old spelling ends with the next release")
