"""Presets: whole measurements by name, from ``manifests/presets.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import Field

from suite.spec.base import Frozen, Track
from suite.spec.catalogue import data_file, find_workload, look_up
from suite.spec.device import Precision

if TYPE_CHECKING:
    from suite.spec.workload import Workload


class PresetPoint(Frozen):
    """One size of a preset: where it runs, how it is laid out, what it does."""

    size: str
    nodes: int = Field(default=1, gt=0)
    devices_per_node: int = Field(gt=0)
    layout: Mapping[str, Any] = Field(
        default={}, description="fields of the layout, for backends that have them; a list compares its values"
    )
    work: Mapping[str, Any] = Field(default={}, description="fields of the workload that this size changes")

    @property
    def ranks(self) -> int:
        return self.nodes * self.devices_per_node


class Preset(Frozen):
    """A named measurement. ``backends`` are those it is run on unless others are named."""

    name: str
    summary: str
    track: Track
    workload: str
    precision: Precision = "bf16"
    backends: tuple[str, ...] = Field(min_length=1)
    installed_only: bool = Field(default=False, description="backends that a machine lacks are left out, and named")
    written_for: str = Field(description="device that the layouts are for; others change them where they must")
    points: tuple[PresetPoint, ...] = Field(min_length=1)
    source: str
    note: str | None = None

    def work_of(self, point: PresetPoint) -> Workload:
        """What one iteration of a point does."""
        return find_workload(self.workload).changed(point.work)


def presets() -> dict[str, Preset]:
    """Every preset by name."""
    return dict(_presets())


def find_preset(name: str) -> Preset:
    """The preset called ``name`` in any case; UsageError with the nearest names otherwise."""
    return _presets()[look_up(name, "preset", _presets(), f"known are {', '.join(_presets())}")]


@lru_cache(maxsize=1)
def _presets() -> Mapping[str, Preset]:
    return MappingProxyType({name: _preset(name, entry) for name, entry in data_file("presets.yaml").items()})


def _preset(name: str, entry: Mapping[str, Any]) -> Preset:
    points = entry["points"]
    if isinstance(points, str):
        points = _reference_points(data_file(points))
    return Preset.model_validate({**entry, "name": name, "points": points})


def _reference_points(reference: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The points of ``trlx_reference.yaml``, whose figures are per data-parallel rank."""
    devices = reference["common"]["devices_per_node"]
    return [
        {
            "size": size,
            "nodes": row["nodes"],
            "devices_per_node": devices,
            "layout": {"tensor": row["tensor"]},
            "work": {
                "rollouts": row["rollouts"] * row["data"] // (row["nodes"] * devices),
                "optimizer_steps": row["optimizer_steps"],
                "micro_batch": row["micro_batch"],
                "trainable_layers": row["trained_layers"],
            },
        }
        for size, row in reference["sizes"].items()
    ]
