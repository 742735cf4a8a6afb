"""Reading results folders for a report: bundles with their records, and what is damaged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from suite.bundle.store import DamagedBundle, find_bundles
from suite.conduct.state import record_of
from suite.report.model import Entry
from suite.spec.base import UsageError


def entries_of(paths: Sequence[Path]) -> tuple[list[Entry], list[str]]:
    """Every readable bundle with its record, derived where a driver died before it could; one line per damaged one.

    Runs that are under way are left out. Raises UsageError when nothing can be reported.
    """
    entries: list[Entry] = []
    damaged: list[str] = []
    for bundle in find_bundles(paths):
        if bundle.running():
            continue
        try:
            entry = Entry(manifest=bundle.manifest(), record=record_of(bundle), path=bundle.path.as_posix())
            entries.append(entry)
        except DamagedBundle as error:
            damaged.append(f"{bundle.path}: {error}")
    if not entries:
        detail = f"; damaged: {damaged[0]}" if damaged else ""
        raise UsageError(f"no bundle to report in {', '.join(str(path) for path in paths)}{detail}")
    return entries, damaged
