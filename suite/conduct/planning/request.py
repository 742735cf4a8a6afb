"""What a user asks of `suite run`, before it is resolved into manifests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from suite.conduct.planning.allowance import Open
from suite.spec.base import Frozen, Track, UsageError
from suite.spec.bounds import MOST_RANKS
from suite.spec.catalogue import find_ladder, find_size
from suite.spec.fields import Declared, Declaring
from suite.spec.layout import LayoutChoices
from suite.spec.manifest import Limits, Measure
from suite.spec.shape import Shape
from suite.spec.stopping import Stopping
from suite.spec.workload import Scaling, Workload


class Request(Declaring):
    """A cross product of backends, sizes, rank counts and layouts on one workload, repeated."""

    backends: tuple[str, ...] = Field(min_length=1, description="deepspeed, or deepspeed@before in an environment")
    sizes: tuple[Shape, ...] = Field(min_length=1)
    ranks: tuple[PositiveInt, ...] = Field(min_length=1)
    nodes: int = Field(default=1, gt=0)
    workload: Workload
    scalings: tuple[Scaling, ...] = ("weak",)
    layout: LayoutChoices = LayoutChoices()
    measure: Measure
    limits: Limits = Limits()
    repeats: int = Field(default=3, gt=0, le=1000)
    stopping: Annotated[Stopping | None, Declared(written="when set")] = Field(
        default=None, description="the rule by which rows get more runs; `repeats` are then its least"
    )
    track: Track = "equal-config"
    device_memory_bytes: int | None = None
    # What a plan is made by, and no part of what identifies it:
    device_name: str | None = Field(default=None, exclude=True, description="as its driver or a user calls it")
    left_open: tuple[Open, ...] = Field(default=(), exclude=True, description="what the prediction may choose")
    preset: str | None = Field(default=None, exclude=True, description="whose the layout is, where no option chose it")

    @model_validator(mode="after")
    def _ranks_can_be_read_back(self) -> "Request":
        if max(self.ranks) > MOST_RANKS:
            raise ValueError(f"{max(self.ranks)} ranks are more than the {MOST_RANKS:,} that a run may have")
        return self

    @property
    def layout_is_open(self) -> bool:
        """Whether the suite may take another layout than the first choice of a preset or of a stack."""
        return self.preset is not None or self.layout == LayoutChoices()

    @property
    def wants_spare(self) -> bool:
        """Whether a layout is changed that fits by less than the memory model's error: not a vendor's own."""
        return self.preset is None or self.track != "vendor-default"


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
    if shape_files:
        from suite.spec.shape_file import load_shape

        shapes += [load_shape(path) for path in shape_files]
    if not shapes:
        raise UsageError("name what to measure: --size, --ladder or --shape (`suite sizes` lists sizes and ladders)")
    twice = {shape.name for shape in shapes if sum(other.name == shape.name for other in shapes) > 1}
    if twice:
        raise UsageError(f"size {sorted(twice)[0]!r} is named twice")
    return tuple(shapes)
