"""What a user asks of `suite run`: a cross product, or the sizes of a preset with what replaces its parts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from suite.backends.registry import seat_of
from suite.conduct.planning.prediction import Open
from suite.spec.base import Frozen, Track, UsageError
from suite.spec.catalogue import Preset, PresetPoint, find_device, find_ladder, find_size, find_workload
from suite.spec.device import Precision
from suite.spec.fields import Declaring, Later, chosen, declared
from suite.spec.layout import Layout, LayoutChoices
from suite.spec.manifest import Limits, Measure, Stopping
from suite.spec.names import finder, repeated
from suite.spec.shape import Shape
from suite.spec.typed import MOST_RANKS
from suite.spec.workload import Scaling, Workload


class Request(Declaring):
    """A cross product of backends, sizes, rank counts and layouts on one workload, repeated."""

    backends: tuple[str, ...] = Field(min_length=1, description="deepspeed, or deepspeed@before in an environment")
    sizes: tuple[Shape, ...] = Field(min_length=1)
    ranks: tuple[Annotated[int, Field(gt=0, le=MOST_RANKS)], ...] = Field(min_length=1)
    nodes: int = Field(default=1, gt=0)
    workload: Workload
    scalings: tuple[Scaling, ...] = ("weak",)
    layout: LayoutChoices = LayoutChoices()
    measure: Measure
    limits: Limits = Limits()
    repeats: int = Field(default=3, gt=0, le=1000)
    stopping: Annotated[Stopping | None, Later()] = Field(default=None, description="adds runs; repeats are its least")
    track: Track = "equal-config"
    device_memory_bytes: int | None = None
    # What a plan is made by, and no part of what identifies it:
    device_name: str | None = Field(default=None, exclude=True, description="as its driver or a user calls it")
    left_open: tuple[Open, ...] = Field(default=(), exclude=True, description="what the prediction may choose")
    preset: str | None = Field(default=None, exclude=True, description="whose the layout is, where no option chose it")

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


def _shapes(names: Sequence[str], ladder: str | None, shape_files: Sequence[Path]) -> tuple[Shape, ...]:
    """The shapes a user named, one by one, by ladder or by file. Raises UsageError for unknown or repeated names."""
    shapes = [find_size(name) for name in (*names, *(find_ladder(ladder) if ladder is not None else ()))]
    if shape_files:
        from suite.spec.shape_file import load_shape

        shapes += [load_shape(path) for path in shape_files]
    if not shapes:
        raise UsageError("name what to measure: --size, --ladder or --shape (`suite sizes` lists sizes and ladders)")
    twice = repeated(shape.name for shape in shapes)
    if twice is not None:
        raise UsageError(f"size {twice!r} is named twice")
    return tuple(shapes)


class GivenOptions(Frozen):
    """Options for sizes, ranks and work as given; empty or ``None``: not given. Beside a preset they override it."""

    sizes: tuple[str, ...] = ()
    ladder: str | None = None
    shape_files: tuple[Path, ...] = ()
    ranks: tuple[int, ...] = ()
    nodes: int | None = None
    workload: str | None = None
    work: Mapping[str, Any] = Field(default={}, description="fields of the workload that were given")
    track: Track | None = None
    precision: Precision | None = None


def requests_of(preset: Preset | None, given: GivenOptions, common: Mapping[str, Any]) -> tuple[Request, ...]:
    """One request for each size of a preset; without one a single request, of work and a precision that its device is
    meant for. ``common``: the fields of ``Request`` that ``given`` has not, its ``measure`` without the precision.
    Raises UsageError for unknown names and ValidationError for values that do not fit."""
    if preset is None:
        on_gpus = common["measure"]["device"] == "cuda"
        sizes = _shapes(given.sizes, given.ladder, given.shape_files)
        usual = find_workload("trlx-ds-chat" if on_gpus else "cpu")
        return (_made(given, common, usual, "bf16" if on_gpus else "fp32", sizes=sizes, ranks=(1,)),)
    if given.ladder is not None or given.shape_files:
        raise UsageError(f"preset {preset.name} has its own sizes: choose with --size, or leave --preset out")
    return tuple(_request(preset, point, given, common) for point in _chosen(preset, given.sizes))


def _made(
    given: GivenOptions, common: Mapping[str, Any], workload: Workload, precision: Precision, **usual: Any
) -> Request:
    """A request of these, but for what was given."""
    work = workload if given.workload is None else find_workload(given.workload)
    measure = {**common["measure"], "precision": given.precision or precision}
    own = {name: getattr(given, name) for name in ("ranks", "nodes", "track") if getattr(given, name)}
    body = {**common, **usual, **own, "workload": work.changed(given.work), "measure": measure}
    return Request.model_validate(body)


def replaced(preset: Preset, given: GivenOptions, common: Mapping[str, Any]) -> Iterator[str]:
    """One line for each part of the preset that an option replaces."""
    points = _chosen(preset, given.sizes)
    options = {name: fact.option for model in (Workload, Layout) for name, fact in declared(model)}
    replaceable: list[tuple[str | None, Any, Sequence[Any]]] = [
        ("--size", given.sizes, [point.size for point in preset.points]),
        ("--ranks", given.ranks, [point.ranks for point in points]),
        ("--workload", given.workload, [preset.workload]),
    ]
    for name, value in given.work.items():
        replaceable.append((options[name], value, [getattr(preset.work_of(point), name) for point in points]))
    replaceable += [("--track", given.track, [preset.track]), ("--dtype", given.precision, [preset.precision])]
    for name in chosen(Layout, "compare"):
        asked = common["layout"].get(name)
        replaceable.append((options[name], asked, [each for point in points for each in _values(point.layout, name)]))
    for option, value, own in replaceable:
        if value not in (None, ()) and own:
            yield f"preset {preset.name}: {option} {_list(value)} replaces {_list(dict.fromkeys(own))}"


def _chosen(preset: Preset, sizes: Sequence[str]) -> tuple[PresetPoint, ...]:
    points = {point.size: point for point in preset.points}
    return tuple(map(finder(f"size of preset {preset.name}", lambda: points), sizes or points))


def _request(preset: Preset, point: PresetPoint, given: GivenOptions, common: Mapping[str, Any]) -> Request:
    layout = dict(common["layout"])
    nobody_chose = LayoutChoices.model_validate(layout) == LayoutChoices()
    known = {name for backend in common["backends"] for name in seat_of(backend)[0].settings}
    compared, automatic = chosen(Layout, "compare"), chosen(Layout, "automatic")
    for name, value in point.layout.items():
        asked = layout.get(name) if name in compared else name in automatic and layout.get(name) is not None
        if name in known and not asked:
            layout[name] = _values(point.layout, name) if name in compared else value
    if layout.get("generation") and "vllm" not in layout["generation"]:
        layout["engine_sleep"] = None  # the preset's, of an engine that was asked away
    more: dict[str, Any] = {"layout": layout, "preset": preset.name if nobody_chose else None}
    # a vendor's layouts stand as they are where the device is not known, the suite's own are for one
    assumed = None if preset.track == "vendor-default" else find_device(preset.written_for)
    if assumed is not None and common.get("device_memory_bytes") is None:
        more |= {"device_memory_bytes": assumed.memory_bytes, "device_name": assumed.name}
    nodes = 1 if given.ranks else point.nodes
    usual = {"sizes": (find_size(point.size),), "ranks": (point.ranks,), "nodes": nodes, "track": preset.track}
    return _made(given, {**common, **more}, preset.work_of(point), preset.precision, **usual)


def _values(layout: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    value = layout.get(name, ())
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _list(values: Any) -> str:
    if isinstance(values, (str, int)):
        return str(values)
    return ", ".join("all" if value is None else str(value) for value in values)
