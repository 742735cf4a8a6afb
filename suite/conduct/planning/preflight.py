"""What a plan is expected to need and to cost, before anything is started; the same for every launcher."""

import math
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from pydantic import Field

from suite.backends.base import BackendDriver
from suite.backends.registry import find_backend
from suite.conduct.planning.prediction import MARGIN, START_SECONDS, can_be_predicted, run_seconds
from suite.report.formatting.numbers import counted, gib, number, span
from suite.spec.base import Frozen
from suite.spec.catalogue import find_device
from suite.spec.device import Device
from suite.spec.fields import declared, is_default
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest


class Expected(Frozen):
    """What the planner expects of a run: bytes of the fullest device, seconds, money."""

    memory_bytes: int
    capacity_bytes: int
    host_memory_bytes: int = Field(description="of one node, at the least: what is offloaded to it")
    fits: bool
    tight: bool = Field(description="fits, but by less than the memory model's 90th percentile of error")
    iteration_seconds: float
    phase_seconds: dict[str, float]
    run_seconds: float = Field(description="all iterations, warm-up in; start-up is not predicted")
    gpu_hours: float = Field(description="of these iterations on all devices")
    cost: float | None = Field(description="of these hours at the price given; null: none was")


class Row(Frozen):
    """One run. ``refused``: why it should not start, and what would do; ``unchecked``: why nothing is known of it."""

    run: str
    expected: Expected | None = None
    refused: str | None = None
    unchecked: str | None = None
    iterations: int
    limit_seconds: float
    hang_seconds: float


class Preflight(Frozen):
    """Every run of a plan that is still to be done."""

    device: str | None
    price: float | None
    rows: tuple[Row, ...]

    @property
    def refusals(self) -> tuple[str, ...]:
        """Each once, however many repeats a row has."""
        return tuple(dict.fromkeys(row.refused for row in self.rows if row.refused is not None))

    def totals(self) -> dict[str, Any]:
        """Of the runs of which something is known: seconds one after the other, GPU-hours and cost."""
        known = [row.expected for row in self.rows if row.expected is not None]
        return {
            "runs": len(known),
            "seconds": sum(expected.run_seconds for expected in known),
            "gpu_hours": sum(expected.gpu_hours for expected in known),
            "cost": None if self.price is None else sum(expected.cost or 0.0 for expected in known),
        }

    def summary(self) -> Iterator[str]:
        """The whole plan in a line or two, for people."""
        totals = self.totals()
        if totals["runs"]:
            cost = "" if self.price is None else f", {number(totals['cost'])} at {self.price:g} per GPU-hour"
            yield (
                f"expected on {self.device}: {counted(totals['runs'], 'run')}, {span(totals['seconds'])} of "
                f"iterations, {number(totals['gpu_hours'])} GPU-hours{cost}; start-up comes on top, and nothing of "
                "this was measured"
            )
        for reason in dict.fromkeys(row.unchecked for row in self.rows if row.unchecked is not None):
            yield f"not checked: {reason}"

    def of(self, runs: Collection[str]) -> "Preflight":
        """The same for some of the runs, by their ids."""
        return self.model_copy(update={"rows": tuple(row for row in self.rows if row.run in runs)})


def preflight(
    manifests: Iterable[Manifest], device: str | None, price: float | None = None, host_memory_bytes: int | None = None
) -> Preflight:
    """What to expect of runs on such devices; ``price``: per device and hour; ``host_memory_bytes``: of a node."""
    found = find_device(device) if device else None
    seen: dict[str, dict[str, Any]] = {}
    rows = []
    for manifest in manifests:
        if manifest.hash not in seen:
            seen[manifest.hash] = _look(manifest, device, found, price, host_memory_bytes)
        limits = {"limit_seconds": manifest.limits.run_seconds, "hang_seconds": manifest.limits.silence_seconds}
        body = {**seen[manifest.hash], **limits, "iterations": manifest.iterations}
        rows.append(Row(run=manifest.run.id, **body))
    return Preflight(device=found.name if found else device, price=price, rows=tuple(rows))


def _look(
    manifest: Manifest, name: str | None, device: Device | None, price: float | None, host_memory_bytes: int | None
) -> dict[str, Any]:
    """What is known of a run, as fields of its ``Row``."""
    measure, backend = manifest.measure, manifest.backend.name
    if measure.device == "cpu":
        return {}
    if device is not None and measure.precision not in device.peak_flops:
        usable = next(one for one in ("bf16", "fp16", "fp32") if one in device.peak_flops)
        why = f"{device.name} computes in no {measure.precision}, by its data sheet; --dtype {usable} would do"
        return {"refused": f"{backend} {manifest.size.name}: {why}"}
    if name is None:
        return {"unchecked": "memory, time and cost: the GPU is not known; suite submit has --gpu"}
    if device is None:
        return {"unchecked": f"memory, time and cost on {name}, which is not in the device catalogue"}
    if not can_be_predicted(measure):
        return {"unchecked": "runs in fp32, of which the planner knows nothing"}
    from suite.planner.predict_manifest import is_split, is_tight, predict_manifest

    if is_split(manifest.layout):
        return {"unchecked": "runs with --placement split: which side waits for the other is not predicted"}

    predicted = predict_manifest(manifest, device.name)
    if predicted is None:
        return {"unchecked": f"runs of {backend} on {device.name}, of which the planner knows nothing"}
    seconds = run_seconds(measure, predicted["iteration_seconds"])
    hours = seconds * manifest.layout.ranks / 3600
    expected = Expected(
        **{name: predicted[name] for name in Expected.model_fields if name in predicted},
        tight=predicted["fits"] and is_tight(predicted["memory_bytes"], predicted["capacity_bytes"]),
        phase_seconds=predicted["phases"],
        run_seconds=seconds,
        gpu_hours=hours,
        cost=None if price is None else price * hours,
    )
    reasons = []
    if not expected.fits:
        reasons.append(_does_not_fit(manifest, predicted, device.name))
    if host_memory_bytes is not None and expected.host_memory_bytes > host_memory_bytes:
        reasons.append(
            f"is expected to keep {gib(expected.host_memory_bytes)} GiB in host memory, of which there are "
            f"{gib(host_memory_bytes)}; more devices, or a smaller size, would do"
        )
    if seconds > manifest.limits.run_seconds:
        reasons.append(_does_not_end(manifest, expected))
    row = f"{backend} {manifest.size.name} {manifest.layout.label()}"
    return {"expected": expected, "refused": f"{row} {'; and it '.join(reasons)}" if reasons else None}


def _does_not_fit(manifest: Manifest, predicted: dict[str, Any], device: str) -> str:
    """How much memory is missing, and the layout or the number of devices that would do."""
    from suite.planner.predict_manifest import fewest_devices, fitting_layouts

    size, workload, layout, backend = manifest.size, manifest.workload, manifest.layout, manifest.backend.name
    capacity = predicted["capacity_bytes"]
    largest = max(predicted["memory"], key=lambda kind: predicted["memory"][kind])
    line = (
        f"is expected to need {gib(predicted['memory_bytes'])} GiB of each {device}, which has {gib(capacity)} "
        f"({largest}: {gib(predicted['memory'][largest])})"
    )
    driver = find_backend(backend)
    for other in fitting_layouts(size, workload, layout, backend, capacity):
        if not driver.errors(size, workload, other, manifest.measure):
            return f"{line}; {_changes(layout, other, driver)} is expected to fit"
    more = fewest_devices(size, workload, layout, backend, capacity)
    if more is None:
        return f"{line}; no number of these devices would do: choose a smaller size, or devices with more memory"
    options = _changes(layout.model_copy(update={"data": more.data}), more, driver)
    also = "" if options == "the same layout" else f" with {options}"
    return f"{line}; no layout of {counted(layout.ranks, 'device')} fits, {more.ranks}{also} would"


def _does_not_end(manifest: Manifest, expected: Expected) -> str:
    measure, limit = manifest.measure, manifest.limits.run_seconds
    possible = int(limit / MARGIN / expected.iteration_seconds) - measure.warmup
    fewer = f", or --iterations {possible}" if 0 < possible < measure.iterations else ""
    minutes = math.ceil((START_SECONDS + MARGIN * expected.run_seconds) / 60)
    return (
        f"is expected to take {span(expected.run_seconds)} of iterations, and its limit is {span(limit)}; "
        f"--timeout {minutes}m{fewer} would do"
    )


def _changes(layout: Layout, other: Layout, driver: BackendDriver) -> str:
    """The options that turn one layout into another, as far as the backend has them."""
    words = []
    for name, fact in declared(Layout):
        value = getattr(other, name)
        if name not in driver.settings or value == getattr(layout, name):
            continue
        if fact.choice == "compare":
            words.append(f"{fact.option} {value}")
        elif fact.choice == "automatic":
            words.append(str(fact.option).replace("--", "--" if value else "--no-", 1))
        else:
            words.append(f"no {fact.option}" if is_default(other, name) else str(fact.option))
    return " ".join(words) or "the same layout"
