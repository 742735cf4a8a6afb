"""What a list of runs shows of one: a few facts of its record, kept beside it so that a list reads no records."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from pydantic_core import from_json

from suite.bundle.cache.ahead import Texts
from suite.bundle.cache.code import code_key
from suite.bundle.cache.database import Database
from suite.bundle.cache.kept import kept_runs
from suite.bundle.cache.packing import Derived
from suite.bundle.cache.place import cache_folder
from suite.bundle.cache.records import DerivedRecords
from suite.bundle.cache.signature import signature_of
from suite.bundle.cache.survey import Surveyed
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
    return _line(from_json(records.text_of(bundle, _KIND, LINES[_KIND], is_alone)))


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
_NAMES = tuple(field.name for field in fields(RunLine))


class KeptLines:
    """The lines of all bundles below some folders, kept together for the next list. ``close`` keeps what is new."""

    def __init__(self, bundles: Iterable[Surveyed]) -> None:
        self._database = Database(cache_folder())
        self._code = code_key() if self._database.is_open else b""
        self._names: dict[str, set[str]] = defaultdict(set)
        for bundle in bundles:
            self._names[bundle.parent].add(bundle.name)
        self._kept = {parent: kept_runs(self._database, self._name(parent)) for parent in self._names}
        self._database.flush()  # whoever keeps records now may not write while this one reads

    def line_of(self, bundle: Surveyed) -> RunLine | None:
        """Of a bundle whose files are as they were; else null."""
        values = self._kept[bundle.parent].known(bundle.name, bundle.signature)
        try:
            return None if values is None else _line({name: values[place] for place, name in enumerate(_NAMES)})
        except (TypeError, LookupError):  # its check holds, but not its content
            return None

    def keep(self, bundle: Surveyed, line: RunLine) -> None:
        """From the next ``close`` on, where nobody wrote to the bundle since it was surveyed."""
        before = bundle.signature
        if before is not None and before.is_settled and signature_of(bundle.path) == before:
            self._kept[bundle.parent].keep(bundle.name, before, [getattr(line, name) for name in _NAMES])

    def close(self) -> None:
        for parent, kept in self._kept.items():
            if kept.is_changed:
                kept.forget_others(self._names[parent])
                self._database.put(self._name(parent), kept.packed())
        self._database.close()

    def _name(self, parent: str) -> bytes:
        return b"lines %s %s" % (self._code, os.fsencode(parent))


def _line(body: dict[str, Any]) -> RunLine:
    """Of parsed JSON."""
    return RunLine(**{**body, "findings": tuple(body["findings"])})
