"""What the results folder holds of a plan: the report of its runs alone."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from suite.bundle.derive import StillRunning, record_of
from suite.bundle.store import Bundle, DamagedBundle
from suite.conduct.planning.plan import Plan
from suite.report.facts.entry import Entry
from suite.report.facts.model import ReportModel, build


def results(plan: Plan, root: Path) -> ReportModel:
    """Of the runs that have ended under ``root``."""
    entries = []
    for manifest in plan.manifests:
        bundle = Bundle(root / manifest.run.id)
        if bundle.path.is_dir() and not bundle.running():
            with suppress(DamagedBundle, StillRunning):
                entries.append(Entry(manifest, record_of(bundle), bundle.path.as_posix()))
    return build(entries)
