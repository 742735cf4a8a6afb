"""What the results folder holds of a plan, one row for each configuration, as the report would pool its runs."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from suite.bundle.derive import record_of
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle
from suite.conduct.planning.plan import Plan
from suite.report.facts.pool import counted_seconds
from suite.stats.intervals import Interval, RunSeconds, pooled_rate


@dataclass(frozen=True)
class Result:
    """The repeats of one manifest: how they ended, and the rate of those that ended well."""

    backend: str
    size: str
    ranks: int
    layout: str
    scaling: str
    runs: str
    samples_per_second: Interval | None


def results(plan: Plan, root: Path) -> list[Result]:
    """The configurations of the plan that have records under ``root``, in the plan's order."""
    repeats: dict[str, list[Record]] = {}
    manifests = {manifest.hash: manifest for manifest in reversed(plan.manifests)}
    for manifest in plan.manifests:
        bundle, records = Bundle(root / manifest.run.id), repeats.setdefault(manifest.hash, [])
        if bundle.path.is_dir() and not bundle.running():
            with suppress(DamagedBundle):
                records.append(record_of(bundle))
    return [
        Result(
            backend=manifests[row].backend.name,
            size=manifests[row].size.name,
            ranks=manifests[row].layout.ranks,
            layout=manifests[row].layout.label(),
            scaling=manifests[row].workload.scaling,
            runs=_endings(records),
            samples_per_second=_rate(records),
        )
        for row, records in repeats.items()
        if records
    ]


def _endings(records: list[Record]) -> str:
    counts = Counter(record.status for record in records)
    return ", ".join(f"{counts[status]} {status}" for status in ("ok", "failed", "interrupted") if counts[status])


def _rate(records: list[Record]) -> Interval | None:
    runs = [
        RunSeconds(record.counts.samples, counted_seconds(record))
        for record in records
        if record.status == "ok" and record.throughput is not None and record.counts is not None
    ]
    return pooled_rate(runs) if runs else None
