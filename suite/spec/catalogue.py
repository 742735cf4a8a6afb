"""Sizes, workloads, devices and presets by name, from the data files in ``manifests/``."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import Field, PositiveInt

from suite.spec.base import Frozen, Track, UsageError
from suite.spec.device import Device, Precision
from suite.spec.names import finder
from suite.spec.shape import Shape

if TYPE_CHECKING:
    from suite.spec.workload import Workload

#: safe as ``yaml.safe_load``; libyaml reads the same ten times as fast where PyYAML was built with it
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PACKAGE = Path(__file__).resolve().parent.parent


@lru_cache(maxsize=1)
def data_root() -> Path:
    """The folder ``manifests``: inside the package where it was installed, beside it in a checkout."""
    for place in (_PACKAGE / "manifests", _PACKAGE.parent / "manifests"):
        if (place / "ladders.yaml").is_file():
            return place
    raise UsageError(f"the data folder 'manifests' is neither in {_PACKAGE} nor beside it: install suite again")


@lru_cache(maxsize=None)
def data_file(file: str) -> Mapping[str, Any]:
    """What a YAML file of the data folder holds; read once, not to be changed."""
    return yaml.load((data_root() / file).read_text(encoding="utf-8"), Loader=_LOADER)


@lru_cache(maxsize=None)
def sizes(ladder: str | None = None) -> Mapping[str, Shape]:
    """Every size by name, or those of one ladder in its order. UsageError for an unknown ladder."""
    if ladder is not None:
        return {name: sizes()[name] for name in find_ladder(ladder)}
    entries = data_file("sizes.yaml").items()
    return {name: Shape.model_validate({"name": name, **entry}, strict=True) for name, entry in entries}


find_size = finder("size", sizes, "`suite sizes` lists them")


@lru_cache(maxsize=1)
def ladders() -> Mapping[str, tuple[str, ...]]:
    """Names of the sizes of each ladder, small to large."""
    return {name: tuple(entry["sizes"]) for name, entry in data_file("ladders.yaml").items()}


find_ladder = finder("ladder", ladders, "`suite sizes` lists them")


@lru_cache(maxsize=1)
def workloads() -> Mapping[str, "Workload"]:
    from suite.spec.workload import Workload  # of many models, which listing sizes need not build

    entries = data_file("workloads.yaml").items()
    return {name: Workload.model_validate({"name": name, **entry}) for name, entry in entries}


find_workload = finder("workload", workloads)


@lru_cache(maxsize=1)
def devices() -> Mapping[str, Device]:
    return {name: _device(name, entry) for name, entry in data_file("devices.yaml").items()}


def find_device(name: str) -> Device | None:
    """The accelerator that a driver or a user calls ``name``, in any case and with or without the maker's name. Whole
    names are compared: a variant that is not listed is unknown, never its sibling."""
    return _device_names().get(_plain(name))


@lru_cache(maxsize=1)
def _device_names() -> Mapping[str, Device]:
    return {_plain(alias): device for device in devices().values() for alias in (device.name, *device.aliases)}


def _plain(name: str) -> str:
    return " ".join(name.lower().split()).removeprefix("nvidia ").removeprefix("amd ")


def _device(name: str, entry: Mapping[str, Any]) -> Device:
    """From the units of data sheets (GiB, GB/s, TFLOP/s) to bytes and FLOP/s."""
    body = {"name": name, **entry}
    link = body.pop("link_gb_per_second")
    body["memory_bytes"] = body.pop("memory_gib") * 2**30
    body["memory_bytes_per_second"] = body.pop("memory_gb_per_second") * 1e9
    body["link_bytes_per_second"] = None if link is None else link * 1e9
    body["peak_flops"] = {precision: peak * 1e12 for precision, peak in body.pop("peak_tflops").items()}
    return Device.model_validate(body)


class PresetPoint(Frozen):
    """One size of a preset: where it runs, how it is laid out, what it does."""

    size: str
    nodes: PositiveInt = 1
    devices_per_node: PositiveInt
    layout: Mapping[str, Any] = Field(default={}, description="fields of the layout; a list compares its values")
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

    def work_of(self, point: PresetPoint) -> "Workload":
        return find_workload(self.workload).changed(point.work)


@lru_cache(maxsize=1)
def presets() -> Mapping[str, Preset]:
    found = {}
    for name, entry in data_file("presets.yaml").items():
        points = entry["points"]
        points = _reference_points(data_file(points)) if isinstance(points, str) else points
        found[name] = Preset.model_validate({**entry, "name": name, "points": points})
    return found


find_preset = finder("preset", presets)


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
