"""What a list of runs shows of one: a few facts of its record, kept beside it so that a list reads no records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic_core import from_json

from suite.bundle.cache.ahead import Texts
from suite.bundle.cache.packing import Derived
from suite.bundle.cache.records import DerivedRecords
from suite.bundle.record import Status
from suite.bundle.store import Bundle

#: A new one where the meaning of what is kept changes; the code that makes it is in the key anyway.
_KIND = b"line "


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


def line_of(records: DerivedRecords, bundle: Bundle, is_alone: bool = False) -> RunLine:
    """``is_alone`` and what is raised: as of ``DerivedRecords.of``."""
    body: dict[str, Any] = from_json(records.text_of(bundle, _KIND, LINES[_KIND], is_alone))
    return RunLine(**{**body, "findings": tuple(body["findings"])})


def _text(derived: Derived) -> bytes:
    record = derived.record
    run, failure, rates = record.run, record.failure, record.throughput
    rate = None if rates is None else rates.samples_per_second
    worker = record.environment.worker or {}
    device = worker.get("cpu" if run.device == "cpu" else "device")
    name = device.get("model" if run.device == "cpu" else "name") if isinstance(device, Mapping) else None
    line = RunLine(
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
    return json.dumps(asdict(line)).encode()


#: What a list asks of every run.
LINES: Texts = {_KIND: _text}
