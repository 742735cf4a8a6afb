"""What a list of runs shows of one: a few facts of its record, kept beside it so that a list reads no records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from suite.bundle.cache.table import Derived, json_view
from suite.bundle.record import Status


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run. Times are Unix seconds, rates samples per second with the run's own interval.

    ``findings``: names of what does not fit together within the bundle, for which reports leave it out.
    ``device_name``: of rank 0's accelerator or processor; null where it did not tell. ``validity`` is null where
    nothing is known of it.
    """

    run: str
    backend: str
    size: str
    ranks: int
    layout: str
    algorithm: str
    workload: str
    device: Literal["cpu", "cuda"]
    device_name: str | None
    precision: str
    repeat: int
    status: Status
    failure: str | None
    validity: str | None
    findings: tuple[str, ...]
    started: float | None
    ended: float | None
    samples_per_second: float | None
    low: float | None
    high: float | None
    digest: str | None

    @property
    def is_valid(self) -> bool:
        """Whether its figures stand: it ended well, and nothing speaks against them."""
        return self.status == "ok" and self.validity not in ("suspect", "invalid") and not self.findings


def _made(derived: Derived) -> RunLine:
    record = derived.record
    run, failure, rates = record.run, record.failure, record.throughput
    rate = None if rates is None else rates.samples_per_second
    worker = record.environment.worker or {}
    device = worker.get("cpu" if run.device == "cpu" else "device")
    name = device.get("model" if run.device == "cpu" else "name") if isinstance(device, Mapping) else None
    return RunLine(
        run=run.id,
        backend=run.backend,
        size=run.size,
        ranks=run.ranks,
        layout=run.layout.label(),
        algorithm=derived.manifest.workload.algorithm.text(),
        workload=run.workload,
        device=run.device,
        device_name=name if isinstance(name, str) else None,
        precision=run.precision,
        repeat=run.repeat,
        status=record.status,
        failure=None if failure is None else failure.kind,
        validity=None if record.validity is None else record.validity.status,
        findings=tuple(sorted({finding.name for finding in derived.findings if finding.leaves_out})),
        started=run.started,
        ended=run.ended,
        samples_per_second=None if rate is None else rate.value,
        low=None if rate is None else rate.low,
        high=None if rate is None else rate.high,
        digest=derived.digest,
    )


LINES = json_view("line", ("report",), _made, RunLine)
