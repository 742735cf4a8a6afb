"""One manifest's prediction, for a warning before a run and for the record beside what was measured."""

from __future__ import annotations

from typing import Any

import numpy as np

from suite.planner.ask import Question
from suite.planner.fabric import Place, place_of
from suite.planner.iteration import PHASES
from suite.planner.iteration_memory import PARTS
from suite.planner.parameters import Parameters, load_parameters
from suite.planner.plan import GIB, Option, predict
from suite.planner.profiles import PROFILES
from suite.planner.space import Space, iterations
from suite.spec.catalogue import find_device
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest, Work
from suite.spec.shape import Shape
from suite.spec.workload import Workload


def predict_manifest(
    manifest: Manifest, device: str | None, parameters: Parameters | None = None
) -> dict[str, Any] | None:
    """What the planner expects of a run on the device that a driver calls ``device``.

    ``None`` where it knows nothing: a CPU, fp32, a device outside the catalogue, a backend without a profile.
    """
    found = find_device(device) if device else None
    place = place_of(found) if found else None
    profile = PROFILES.get(manifest.backend.name)
    measure = manifest.measure
    if place is None or profile is None or measure.device != "cuda" or measure.precision == "fp32":
        return None
    known = parameters or load_parameters()
    space = one_layout(manifest.size, manifest.workload, manifest.work, manifest.layout, place, manifest.backend.name)
    table = predict(space, place, profile, known)
    rate, total = float(table.rate[0]), float(table.total[0])
    return {
        "samples_per_second": rate,
        "tokens_per_second": rate * manifest.workload.sequence_tokens,
        "iteration_seconds": float(table.iteration[0]),
        "phases": {name: float(table.seconds[name][0]) for name in PHASES},
        "memory_bytes": int(total),
        "memory": {part: int(table.memory[part][0]) for part in PARTS if table.memory[part][0] >= 1},
        "capacity_bytes": int(place.memory_bytes),
        "fits": bool(table.fits[0]),
        "device": place.name,
        "band": known.bands["new stack"].model_dump(),
        "planner": known.provenance.digest[:12],
    }


def one_layout(shape: Shape, workload: Workload, work: Work, layout: Layout, place: Place, backend: str) -> Space:
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
        "sequence_parallel": layout.sequence_parallel,
        "rollouts": work.replica_rollouts,
        "micro_batch": work.micro_batch,
    }
    arrays = {name: np.array([float(value)]) for name, value in columns.items()}
    return Space(iterations(shape, workload, place, PROFILES[backend], arrays), arrays)


def warning(asked: Question, manifest: Manifest, predicted: dict[str, Any] | None) -> str | None:
    """One line for a run that is not expected to fit, with the nearest layout that is; ``None`` for one that is."""
    if predicted is None or predicted["fits"]:
        return None
    largest = max(predicted["memory"], key=lambda part: predicted["memory"][part])
    missing = (predicted["memory_bytes"] - predicted["capacity_bytes"]) / GIB
    line = (
        f"{manifest.run.id}: {manifest.layout.label()} is expected to miss by {missing:.1f} GiB per device "
        f"({largest} take {predicted['memory'][largest] / GIB:.1f} GiB)"
    )
    option = nearest_fitting(asked, manifest.layout)
    return f"{line}; {option.label} with micro batch {option.micro_batch} is expected to fit" if option else line


def nearest_fitting(asked: Question, layout: Layout) -> Option | None:
    """Of the layouts that fit on as many devices, the one that changes the fewest settings; ties to the faster."""
    options = asked.plan([layout.ranks], most=64).options
    own = layout.model_dump()

    def changes(option: Option) -> int:
        other = option.layout.model_dump()
        return sum(own[name] != other[name] for name in own)

    return min(options, key=changes, default=None)
