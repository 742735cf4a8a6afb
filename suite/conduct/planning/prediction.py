"""The planner beside runs: a layout that is expected to fit, how long a run should take, predictions in records.

The planner is imported only for runs on CUDA in 16 bit: of a CPU it knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from suite.bundle.record import Record
from suite.conduct.planning.allowance import Pace
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest, Measure
from suite.spec.resolve import resolve_work
from suite.spec.shape import Shape
from suite.spec.workload import Workload


def can_be_predicted(measure: Measure) -> bool:
    """Whether the planner could know such a run at all."""
    return measure.device == "cuda" and measure.precision != "fp32"


def layouts_to_prefer(
    size: Shape,
    workload: Workload,
    layout: Layout,
    backend: str,
    measure: Measure,
    device_memory_bytes: int | None,
    spare: bool,
) -> Iterator[Layout]:
    """Layouts expected to fit a device of this memory, nearest to ``layout`` first; none where ``layout`` itself does.

    ``spare``: nor may it be nearer to the capacity than the memory model's error, if another layout is not.

    Whether a layout fits does not depend on the device's speed, so that any device can be planned for.
    """
    if device_memory_bytes is None or not can_be_predicted(measure):
        return
    from suite.planner.predict_manifest import fitting_layouts

    yield from fitting_layouts(size, workload, layout, backend, device_memory_bytes, spare)


def expected_pace(
    size: Shape, workload: Workload, layout: Layout, backend: str, measure: Measure, device: str | None
) -> Pace | None:
    """Seconds that an iteration and its longest phase are expected to take; ``None`` where nothing is known."""
    predicted = _predicted(size, workload, layout, backend, measure, device)
    return None if predicted is None else Pace(predicted["iteration_seconds"], max(predicted["phases"].values()))


def expected_bytes(
    size: Shape, workload: Workload, layout: Layout, backend: str, measure: Measure, device: str | None
) -> int | None:
    """What of its fullest device a run is expected to take; ``None`` where nothing is known."""
    predicted = _predicted(size, workload, layout, backend, measure, device)
    return None if predicted is None else int(predicted["memory_bytes"])


def _predicted(
    size: Shape, workload: Workload, layout: Layout, backend: str, measure: Measure, device: str | None
) -> dict[str, Any] | None:
    if device is None or not can_be_predicted(measure):
        return None
    from suite.planner.predict_manifest import predict_layout

    return predict_layout(size, workload, resolve_work(size, workload, layout, measure.seed), layout, backend, device)


def with_prediction(record: Record, manifest: Manifest) -> Record:
    """The record with what the planner expected of the run, where it knows the device that the worker saw."""
    if not can_be_predicted(manifest.measure):
        return record
    from suite.planner.predict_manifest import device_of, predict_manifest

    predicted = predict_manifest(manifest, device_of(record))
    return record if predicted is None else record.model_copy(update={"predicted": predicted})
