"""One manifest's prediction, for a warning before a run and for the record beside what was measured."""

from dataclasses import replace
from typing import Any

import numpy as np

from suite.bundle.record import Record
from suite.planner.ask import Question
from suite.planner.found import of_space
from suite.planner.hardware import hardware_of
from suite.planner.lengths import of_samples
from suite.planner.memory import PARTS, host_memory
from suite.planner.parameters import Parameters, load_parameters
from suite.planner.plan import fitting_on
from suite.planner.profiles import PROFILES, Profile
from suite.planner.space import PLANNED, Manner, Space, space_of
from suite.spec.catalogue import devices, find_device
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest, Work
from suite.spec.phases import TIMED_NAMES
from suite.spec.resolve import resolve_work
from suite.spec.shape import Shape
from suite.spec.workload import Workload

MOST_DOUBLINGS = 7


def predict_manifest(
    manifest: Manifest, device: str | None, parameters: Parameters | None = None
) -> dict[str, Any] | None:
    """What the planner expects of a run on the device that a driver calls ``device``.

    ``None`` where it knows nothing: a CPU, fp32, a device outside the catalogue, a backend without a profile, ranks
    that only generate.
    """
    measure = manifest.measure
    if measure.device != "cuda" or measure.precision == "fp32":
        return None
    body = (manifest.size, manifest.workload, manifest.work, manifest.layout, manifest.backend.name)
    return predict_layout(*body, device, parameters)


def predict_layout(
    size: Shape,
    workload: Workload,
    work: Work,
    layout: Layout,
    backend: str,
    device: str | None,
    parameters: Parameters | None = None,
) -> dict[str, Any] | None:
    """The same of a layout that is no manifest yet, in 16 bit."""
    found = find_device(device) if device else None
    hardware = hardware_of(found) if found else None
    profile = _profile(backend, layout)
    if hardware is None or profile is None:
        return None
    known = parameters or load_parameters()
    asked = Question(size, workload, hardware, profile, known, manner=Manner.of(layout))
    one = of_space(asked, one_layout(asked, work, layout))
    told, rate = one.told, float(one.rate[0])
    low, high = one.bands([0])
    return {
        "samples_per_second": rate,
        "low": rate * float(low[0]),
        "high": rate * float(high[0]),
        "tokens_per_second": rate * float(one.space.sample_tokens[0]),
        "iteration_seconds": float(told.seconds[0]),
        "phases": {name: float(told.phases[name][0]) for name in TIMED_NAMES if told.phases[name][0] > 0},
        "memory_bytes": int(told.memory.total[0]),
        "memory": {part: int(told.memory.parts[part][0]) for part in PARTS if told.memory.parts[part][0] >= 1},
        "capacity_bytes": int(hardware.memory_bytes),
        "host_memory_bytes": int(host_memory(one.space.work)[0] / layout.nodes),
        "fits": bool(told.fits[0]),
        "device": hardware.name,
        "planner": known.provenance.digest[:12],
    }


def is_split(layout: Layout) -> bool:
    """Whether ranks that generate and ranks that train take turns at waiting for each other: how a run of the suite
    divides them, `suite plan` searches; of one such layout nothing is predicted."""
    return layout.placement == "split"


def _profile(backend: str, layout: Layout) -> Profile | None:
    """What the planner knows of a backend; nothing of trainers whose own engine no layout describes."""
    profile = PROFILES.get(backend)
    return None if profile is None or profile.engine_only or is_split(layout) else profile


def is_tight(memory_bytes: float, capacity_bytes: float) -> bool:
    """Whether a prediction that fits would not at the high end of the memory model's band."""
    return memory_bytes * load_parameters().bands["memory"].new.high > capacity_bytes


def one_layout(asked: Question, work: Work, layout: Layout) -> Space:
    """A space of one candidate: the layout and micro batch given."""
    columns = {
        "devices": layout.ranks,
        "recompute": 3 if layout.recompute == "full" else 0,
        "rollouts": work.replica_rollouts,
        "micro_batch": work.micro_batch,
        "context": 1,
        "chunks": 1,
        **{name: getattr(layout, name) for name in PLANNED - {"recompute"}},
    }
    arrays = {name: np.array([float(value)]) for name, value in columns.items()}
    lengths = None if work.lengths is None else {layout.ranks: of_samples(work.lengths)}
    return space_of(replace(asked, manner=Manner.of(layout)), arrays, lengths)


def device_of(record: Record) -> str | None:
    """The device that rank 0 saw, as its driver calls it."""
    device = (record.environment.worker or {}).get("device")
    name = device.get("name") if isinstance(device, dict) else None
    return name if isinstance(name, str) else None


def fitting_layouts(
    size: Shape, workload: Workload, layout: Layout, backend: str, device_memory_bytes: int, spare: bool = False
) -> list[Layout]:
    """Layouts on as many devices that are expected to fit: those with room to spare first, then those that change
    fewest settings, then the faster.

    Empty where ``layout`` itself is expected to fit; with ``spare`` they are those with room to spare, if it has none.
    Empty for a backend that the planner does not know. Each holds with the micro batch that the workload resolves to.
    """
    asked = _with_memory(size, workload, layout, backend, device_memory_bytes)
    if asked is None:
        return []
    work = resolve_work(size, workload, layout)
    own = of_space(asked, one_layout(asked, work, layout)).told
    fits, tight = bool(own.fits[0]), is_tight(float(own.memory.total[0]), device_memory_bytes)
    if fits and not (spare and tight):
        return []
    settings = layout.model_dump()
    nodes = {"nodes": layout.nodes, "devices_per_node": layout.devices_per_node}
    even = workload.model_copy(update={"lengths": None, "prompt_lengths": None})  # micro batches do not depend on them
    usable: list[tuple[bool, int, int, Layout]] = []
    for option in fitting_on(asked, layout.ranks):
        other = layout.model_copy(update={name: getattr(option.layout, name) for name in PLANNED} | nodes)
        same_batch = option.micro_batch == resolve_work(size, even, option.layout).micro_batch
        if same_batch and not (fits and option.tight):
            body = other.model_dump()
            changes = sum(settings.get(name) != body.get(name) for name in settings.keys() | body.keys())
            usable.append((option.tight, changes, len(usable), other))
    return [other for *_, other in sorted(usable, key=lambda entry: entry[:3])]


def fewest_devices(
    size: Shape, workload: Workload, layout: Layout, backend: str, device_memory_bytes: int
) -> Layout | None:
    """A layout that is expected to fit on 2, 4, 8 ... times as many devices as ``layout`` has; ``None``: on none."""
    asked = _with_memory(size, workload, layout, backend, device_memory_bytes)
    if asked is None:
        return None
    every = (fitting_on(asked, layout.ranks * 2**doubled) for doubled in range(1, MOST_DOUBLINGS + 1))
    return next((found[0].layout for found in every if found), None)


def _with_memory(size: Shape, workload: Workload, layout: Layout, backend: str, memory: int) -> Question | None:
    """A question about any device with this memory: what fits does not depend on speed. ``None``: nothing is known."""
    profile = _profile(backend, layout)
    if profile is None:
        return None
    hardware = replace(next(filter(None, map(hardware_of, devices().values()))), memory_bytes=float(memory))
    return Question(size, workload, hardware, profile, load_parameters(), manner=Manner.of(layout))
