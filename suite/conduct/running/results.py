"""What the results folder holds of a plan, one row for each configuration, as the report would pool its runs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from suite.bundle.derive import StillRunning, record_of
from suite.bundle.record import Record
from suite.bundle.store import Bundle, DamagedBundle
from suite.conduct.planning.plan import Plan
from suite.report.facts.pool import counted_seconds
from suite.report.facts.suspect import doubts_of, is_suspect, pooled
from suite.report.formatting.numbers import interval
from suite.spec.manifest import Manifest
from suite.stats.intervals import Interval, RunSeconds, log_rates, pooled_rate
from suite.stats.moderated import moderate


@dataclass(frozen=True)
class Result:
    """The repeats of one manifest: how they ended, and the rate of those that ended well."""

    backend: str
    size: str
    ranks: int
    layout: str
    scaling: str
    runs: int
    runs_ok: int
    runs_interrupted: int
    runs_suspect: int
    doubts: tuple[str, ...]
    samples_per_second: Interval | None

    @property
    def ok_runs(self) -> str:
        """How many runs ended well, and how many of these something disturbed."""
        return f"{self.runs_ok} of {self.runs}{f', {self.runs_suspect} suspect' if self.runs_suspect else ''}"

    @property
    def rate(self) -> str:
        """The rate with its interval, or why there is none."""
        if self.samples_per_second is not None:
            return interval(self.samples_per_second)
        return "interrupted" if self.runs_interrupted == self.runs else "failed"


def results(plan: Plan, root: Path) -> list[Result]:
    """The configurations of the plan that have records under ``root``, in the plan's order."""
    repeats: dict[str, list[Record]] = {}
    manifests = {manifest.hash: manifest for manifest in reversed(plan.manifests)}
    for manifest in plan.manifests:
        bundle, records = Bundle(root / manifest.run.id), repeats.setdefault(manifest.hash, [])
        if bundle.path.is_dir() and not bundle.running():
            with suppress(DamagedBundle, StillRunning):
                records.append(record_of(bundle))
    measured = {row: _measured(records, _takes_suspect(manifests[row])) for row, records in repeats.items()}
    prior = moderate([log_rates(runs) for runs in measured.values()])
    return [
        Result(
            backend=manifests[row].backend.label,
            size=manifests[row].size.name,
            ranks=manifests[row].layout.ranks,
            layout=manifests[row].layout.label(),
            scaling=manifests[row].workload.scaling,
            runs=len(records),
            runs_ok=sum(record.status == "ok" for record in records),
            runs_interrupted=sum(record.status == "interrupted" for record in records),
            runs_suspect=sum(record.status == "ok" and is_suspect(record) for record in records),
            doubts=doubts_of([record for record in records if record.status == "ok"]),
            samples_per_second=pooled_rate(measured[row], prior) if measured[row] else None,
        )
        for row, records in repeats.items()
        if records
    ]


def _takes_suspect(manifest: Manifest) -> bool:
    return manifest.run.stopping is not None and manifest.run.stopping.with_suspect


def _measured(records: list[Record], with_suspect: bool) -> list[RunSeconds]:
    with_rate = [record for record in records if record.status == "ok" and record.throughput is not None]
    return [
        RunSeconds(record.counts.samples, counted_seconds(record))
        for record in pooled(with_rate, with_suspect)
        if record.counts is not None
    ]
