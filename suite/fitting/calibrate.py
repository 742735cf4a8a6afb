"""What the user's own runs teach the planner: ceilings of the device, factors on phases and on memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from suite.bundle.record import Record
from suite.bundle.store import DamagedBundle, find_bundles
from suite.planner.ask import Question
from suite.planner.hardware import Hardware, hardware_of
from suite.planner.parameters import Parameters
from suite.planner.predict_manifest import device_of, predict_manifest
from suite.spec.base import UsageError
from suite.spec.catalogue import find_device
from suite.spec.manifest import Manifest
from suite.spec.phases import TIMED

#: torch's names of the dtypes that the planner's matrix products have, and the catalogue's
_HALF = {"bfloat16": "bf16", "float16": "fp16"}
#: a phase without tokens does host work, which no device's speed scales
_PHASES = tuple(phase.name for phase in TIMED if phase.tokens)


def calibrated(asked: Question, folder: Path) -> Question:
    """The question with parameters that agree with the finished runs of its backend and device in ``folder``.

    Ceilings measured on the device replace the shares of its peaks; then each phase is multiplied by the median of
    measured over predicted. Raises UsageError where the folder holds no such run.
    """
    runs = _runs(asked, folder)
    parameters = _with_ceilings(asked, runs)
    ratios: dict[str, list[float]] = {phase: [] for phase in _PHASES}
    memory: list[float] = []
    for manifest, record in runs:
        expected = predict_manifest(manifest, device_of(record), parameters)
        if expected is None or record.phases is None:
            continue
        measured = record.phases.model_dump()
        for phase in _PHASES:
            seconds = (measured.get(phase) or {}).get("seconds")
            if seconds and expected["phases"].get(phase, 0) > 0:
                ratios[phase].append(float(seconds) / float(expected["phases"][phase]))
        peak = record.memory.peak_reserved_bytes if record.memory else None
        if peak:
            memory.append(peak / expected["memory_bytes"])
    factors = {phase: float(np.exp(np.median(np.log(values)))) for phase, values in ratios.items() if values}
    update: dict[str, Any] = {"phases": factors}
    if memory:
        update["memory_factor"] = max(memory)
    return replace(asked, parameters=parameters.model_copy(update=update))


def _runs(asked: Question, folder: Path) -> list[tuple[Manifest, Record]]:
    found = []
    for bundle in find_bundles([folder]):
        try:
            manifest, record = bundle.manifest(), bundle.record()
        except DamagedBundle:
            continue
        known = find_device(device_of(record) or "") if record else None
        if record is None or record.status != "ok" or manifest.backend.name != asked.profile.name or known is None:
            continue
        hardware = hardware_of(known)
        if hardware is not None and hardware.name == asked.hardware.name:
            found.append((manifest, record))
    if not found:
        raise UsageError(f"{folder} has no finished run of {asked.profile.name} on {asked.hardware.name} to learn from")
    return found


def _with_ceilings(asked: Question, runs: list[tuple[Manifest, Record]]) -> Parameters:
    """Shares of the device's peaks: the copy's of its bandwidth, the matrix product's of the peak in its own dtype."""
    hardware, records = asked.hardware, [record for _, record in runs]
    shares = {
        f"matrix_{hardware.architecture}": [_matrix_share(hardware, record) for record in records],
        "memory_bandwidth": [_share(record, "copy_bytes_per_second", hardware.memory_bandwidth) for record in records],
    }
    known = {name: [share for share in found if share is not None] for name, found in shares.items()}
    measured = {name: float(np.median(found)) for name, found in known.items() if found}
    return asked.parameters.model_copy(update={"values": {**asked.parameters.values, **measured}})


def _matrix_share(hardware: Hardware, record: Record) -> float | None:
    """Of a product in 16 bits, which is what the planner predicts; older runs told no dtype and measured bf16."""
    ceilings = _ceilings(record)
    precision = _HALF.get(str(ceilings.get("matmul_dtype", "bfloat16")))
    peak = hardware.peak_by_precision.get(precision) if precision else None
    return _share(record, "matmul_flops", peak) if peak else None


def _share(record: Record, name: str, peak: float) -> float | None:
    value = _ceilings(record).get(name)
    return float(value) / peak if isinstance(value, (int, float)) and value > 0 else None


def _ceilings(record: Record) -> dict[str, Any]:
    found = (record.environment.worker or {}).get("ceilings")
    return found if isinstance(found, dict) else {}
