"""The planner beside runs: a layout that is expected to fit, a warning where none was chosen, predictions in records.

The planner is imported only for runs on CUDA in 16 bit: of a CPU it knows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from suite.bundle.record import Record
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest, Measure
from suite.spec.shape import Shape
from suite.spec.workload import Workload


def can_be_predicted(measure: Measure) -> bool:
    """Whether the planner could know such a run at all."""
    return measure.device == "cuda" and measure.precision != "fp32"


def layouts_to_prefer(
    size: Shape, workload: Workload, layout: Layout, backend: str, measure: Measure, device_memory_bytes: int | None
) -> Iterator[Layout]:
    """Layouts expected to fit a device of this memory, nearest to ``layout`` first; none where ``layout`` itself does.

    Whether a layout fits does not depend on the device's speed, so that any device can be planned for.
    """
    if device_memory_bytes is None or not can_be_predicted(measure):
        return
    from suite.planner.predict_manifest import fitting_layouts

    yield from fitting_layouts(size, workload, layout, backend, device_memory_bytes)


def fit_warnings(manifests: Iterable[Manifest], device_name: str | None) -> list[str]:
    """One line for each layout that is not expected to fit, with the nearest that is; one for all its repeats."""
    lines: dict[str, str] = {}
    for manifest in manifests:
        if device_name is None or not can_be_predicted(manifest.measure) or manifest.hash in lines:
            continue
        from suite.planner.predict_manifest import fit_warning

        line = fit_warning(manifest, device_name)
        if line is not None:
            lines[manifest.hash] = line
    return list(lines.values())


def with_prediction(record: Record, manifest: Manifest) -> Record:
    """The record with what the planner expected of the run, where it knows the device that the worker saw."""
    if not can_be_predicted(manifest.measure):
        return record
    from suite.planner.predict_manifest import device_of, predict_manifest

    predicted = predict_manifest(manifest, device_of(record))
    return record if predicted is None else record.model_copy(update={"predicted": predicted})
