"""``-o -``: what a command writes into a file goes to standard output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

STANDARD_OUTPUT = Path("-")


@contextmanager
def written_to(output: Path, suffix: str, as_json: bool = False) -> Iterator[Path]:
    """Where to write: ``output``, or for ``-`` a file of that suffix, which is printed at the end.

    Raises UsageError where JSON is to be printed as well.
    """
    if output != STANDARD_OUTPUT:
        yield output
        return
    if as_json:
        from suite.spec.base import UsageError

        raise UsageError("--json and --output - are both printed: write one of them into a file")
    with TemporaryDirectory(prefix="suite-output-") as folder:
        path = Path(folder) / f"output{suffix}"
        yield path
        sys.stdout.flush()
        sys.stdout.buffer.write(path.read_bytes())
