"""Programs that tests write for the suite to start."""

import shlex
import sys
from pathlib import Path


def python_program(path: Path, text: str, *options: str) -> None:
    """A program of these lines of Python. sh starts it: a ``#!`` takes no interpreter whose path has a space."""
    start = f'exec {shlex.join((sys.executable, *options))} "$0" "$@"'
    path.write_text(f"#!/bin/sh\n''':'\n{start}\n'''\n{text}")
    path.chmod(0o755)
