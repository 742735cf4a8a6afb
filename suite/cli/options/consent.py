"""Asking before a manifest of somebody else is run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from suite.spec.terminal import say

if TYPE_CHECKING:
    from suite.spec.manifest import Manifest

Yes = Annotated[
    bool,
    typer.Option("--yes", help="run it without asking, although you did not record it on this machine"),
]


def require_consent(manifest: Manifest, path: Path, runs: str, yes: bool, named: Path | None = None) -> None:
    """Nothing for a bundle that this user recorded here; any other manifest is shown, and asked about on a terminal.

    ``runs``: how many it will be, in words. ``named``: how the user named it, where it lies elsewhere. Raises
    UsageError where the answer is no, or where nobody can be asked.
    """
    from suite.conduct.running.consent import recorded_here, what_it_asks
    from suite.spec.base import UsageError

    if yes or recorded_here(manifest, path):
        return
    path = named or path
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        raise UsageError(
            f"{path} is not a bundle that you recorded on this machine: give the same command on a terminal to see "
            "what it asks for, or run it with --yes"
        )
    say(f"{path} is not a bundle that you recorded on this machine. It asks for:", err=True)
    for line in what_it_asks(manifest, runs):
        say(f"  {line}", err=True)
    say("run it? [y/N]", err=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UsageError("not run: the answer was not yes")


def _is_terminal(stream: object) -> bool:
    return stream is not None and bool(getattr(stream, "isatty", bool)())
