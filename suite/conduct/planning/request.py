"""What a user asks of `suite run`, before it is resolved into manifests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from suite.spec.base import Frozen, UsageError
from suite.spec.catalogue import find_ladder, find_size, find_workload, load_shape
from suite.spec.layout import Recompute
from suite.spec.manifest import Limits, Measure, Track
from suite.spec.shape import Shape
from suite.spec.workload import Scaling, Workload


class LayoutChoices(Frozen):
    """Layout values to cross; an empty tuple or ``None`` leaves the choice to each backend."""

    zero_stage: tuple[Annotated[int, Field(ge=0, le=3)], ...] = ()
    tensor: tuple[PositiveInt, ...] = ()
    pipeline: tuple[PositiveInt, ...] = ()
    sequence_parallel: bool | None = None
    distributed_optimizer: bool | None = None
    recompute: Recompute = "none"
    offload_optimizer: bool = False
    offload_parameters: bool = False


class Request(Frozen):
    """A cross product of backends, sizes, rank counts and layouts on one workload, repeated."""

    backends: tuple[str, ...] = Field(min_length=1)
    sizes: tuple[Shape, ...] = Field(min_length=1)
    ranks: tuple[PositiveInt, ...] = Field(min_length=1)
    nodes: int = Field(default=1, gt=0)
    workload: Workload
    scalings: tuple[Scaling, ...] = ("weak",)
    layout: LayoutChoices = LayoutChoices()
    measure: Measure
    limits: Limits = Limits()
    repeats: int = Field(default=3, gt=0, le=1000)
    track: Track = "equal-config"
    device_memory_bytes: int | None = None


class Skipped(Frozen):
    """A point of the cross product that cannot be run, and why."""

    backend: str
    size: str
    ranks: int
    reason: str


RunState = Literal["to run", "done", "failed before", "interrupted", "damaged", "running"]


def chosen_sizes(names: Sequence[str], ladder: str | None, shape_files: Sequence[Path]) -> tuple[Shape, ...]:
    """The shapes a user named, one by one, by ladder or by file. Raises UsageError for unknown or repeated names."""
    shapes = [find_size(name) for name in names]
    if ladder is not None:
        shapes += [find_size(name) for name in find_ladder(ladder)]
    shapes += [load_shape(path) for path in shape_files]
    if not shapes:
        raise UsageError("name what to measure: --size, --ladder or --shape (`suite sizes` lists sizes and ladders)")
    twice = {shape.name for shape in shapes if sum(other.name == shape.name for other in shapes) > 1}
    if twice:
        raise UsageError(f"size {sorted(twice)[0]!r} is named twice")
    return tuple(shapes)


def chosen_workload(name: str, trainable_layers: int | None, reference: str | None) -> Workload:
    """A workload of the catalogue, with the parts that a user may change. Raises UsageError and ValidationError."""
    return changed_workload(find_workload(name), trainable_layers, reference)


def changed_workload(workload: Workload, trainable_layers: int | None, reference: str | None) -> Workload:
    """The workload with those parts changed that are given. Raises ValidationError where they do not fit it."""
    body = workload.model_dump()
    if trainable_layers is not None:
        body["trainable_layers"] = trainable_layers
    if reference is not None:
        body["reference"] = reference
    return Workload.model_validate(body)
