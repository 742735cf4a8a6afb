"""One manifest's prediction, for a warning before a run and for the record beside what was measured."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from suite.bundle.record import Record
from suite.planner.hardware import Hardware, hardware_of
from suite.planner.iteration_memory import PARTS
from suite.planner.parameters import Parameters, load_parameters
from suite.planner.plan import GIB, make_plan, predict
from suite.planner.profiles import PROFILES
from suite.planner.space import Space, iterations
from suite.spec.catalogue import devices, find_device
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest, Work
from suite.spec.phases import TIMED_NAMES
from suite.spec.resolve import resolve_work
from suite.spec.shape import Shape
from suite.spec.workload import Workload


def predict_manifest(
    manifest: Manifest, device: str | None, parameters: Parameters | None = None
) -> dict[str, Any] | None:
    """What the planner expects of a run on the device that a driver calls ``device``.

    ``None`` where it knows nothing: a CPU, fp32, a device outside the catalogue, a backend without a profile.
    """
    found = find_device(device) if device else None
    hardware = hardware_of(found) if found else None
    profile = PROFILES.get(manifest.backend.name)
    measure = manifest.measure
    if hardware is None or profile is None or measure.device != "cuda" or measure.precision == "fp32":
        return None
    known = parameters or load_parameters()
    space = one_layout(
        manifest.size, manifest.workload, manifest.work, manifest.layout, hardware, manifest.backend.name
    )
    table = predict(space, hardware, profile, known)
    rate, total = float(table.rate[0]), float(table.total[0])
    return {
        "samples_per_second": rate,
        "tokens_per_second": rate * manifest.workload.sequence_tokens,
        "iteration_seconds": float(table.iteration[0]),
        "phases": {name: float(table.seconds[name][0]) for name in TIMED_NAMES if name in table.seconds},
        "memory_bytes": int(total),
        "memory": {kind: int(table.memory[kind][0]) for kind in PARTS if table.memory[kind][0] >= 1},
        "capacity_bytes": int(hardware.memory_bytes),
        "fits": bool(table.fits[0]),
        "device": hardware.name,
        "band": known.bands["new stack"].model_dump(),
        "planner": known.provenance.digest[:12],
    }


@lru_cache(maxsize=1)
def _any_hardware() -> Hardware:
    hardware = next(filter(None, map(hardware_of, devices().values())), None)
    assert hardware is not None, "the catalogue holds devices with a 16-bit peak"
    return hardware


def one_layout(shape: Shape, workload: Workload, work: Work, layout: Layout, hardware: Hardware, backend: str) -> Space:
    """A space of one candidate: the layout and micro batch given."""
    columns = {
        "devices": layout.ranks,
        "tensor": layout.tensor,
        "pipeline": layout.pipeline,
        "data": layout.data,
        "zero_stage": layout.zero_stage,
        "distributed_optimizer": layout.distributed_optimizer,
        "recompute": 3 if layout.recompute == "full" else 0,
        "offload_optimizer": layout.offload_optimizer,
        "offload_parameters": layout.offload_parameters,
        "gather_for_generation": layout.gather_for_generation,
        "sequence_parallel": layout.sequence_parallel,
        "rollouts": work.replica_rollouts,
        "micro_batch": work.micro_batch,
    }
    arrays = {name: np.array([float(value)]) for name, value in columns.items()}
    return Space(iterations(shape, workload, hardware, PROFILES[backend], arrays), arrays)


def device_of(record: Record) -> str | None:
    """The device that rank 0 saw, as its driver calls it."""
    device = (record.environment.worker or {}).get("device")
    name = device.get("name") if isinstance(device, dict) else None
    return name if isinstance(name, str) else None


def fit_warning(manifest: Manifest, device: str) -> str | None:
    """One line for a run that is not expected to fit, with the nearest layout that is; ``None`` for one that is.

    ``None`` too where the planner knows nothing (``predict_manifest``).
    """
    predicted = predict_manifest(manifest, device)
    if predicted is None or predicted["fits"]:
        return None
    largest = max(predicted["memory"], key=lambda kind: predicted["memory"][kind])
    missing = (predicted["memory_bytes"] - predicted["capacity_bytes"]) / GIB
    line = (
        f"{manifest.backend.name} {manifest.size.name} {manifest.layout.label()}: expected to miss by "
        f"{missing:.1f} GiB per device ({largest} take {predicted['memory'][largest] / GIB:.1f} GiB)"
    )
    layouts = fitting_layouts(
        manifest.size, manifest.workload, manifest.layout, manifest.backend.name, predicted["capacity_bytes"]
    )
    return f"{line}; {layouts[0].label() if layouts else 'no layout'} is expected to fit"


def fitting_layouts(
    size: Shape, workload: Workload, layout: Layout, backend: str, device_memory_bytes: int
) -> list[Layout]:
    """Layouts on as many devices that are expected to fit, those that change fewest settings first, then the faster.

    Empty where ``layout`` itself is expected to fit, and for a backend that the planner does not know. Each holds with
    the micro batch that the workload resolves to.
    """
    profile = PROFILES.get(backend)
    if profile is None:
        return []
    # Memory does not depend on speed: any device stands in, with the memory that is asked about.
    hardware = replace(_any_hardware(), memory_bytes=float(device_memory_bytes))
    known = load_parameters()
    work = resolve_work(size, workload, layout)
    own = predict(one_layout(size, workload, work, layout, hardware, backend), hardware, profile, known)
    if bool(own.fits[0]):
        return []
    options = make_plan(size, workload, hardware, profile, [layout.ranks], known, most=64).options
    nodes = {"nodes": layout.nodes, "devices_per_node": layout.devices_per_node}
    usable = [
        option.layout.model_copy(update=nodes)
        for option in options
        if option.micro_batch == resolve_work(size, workload, option.layout).micro_batch
    ]
    settings = layout.model_dump()

    def changes(other: Layout) -> int:
        body = other.model_dump()
        return sum(settings[name] != body[name] for name in settings)

    return sorted(usable, key=changes)
