"""Scaling curves of arrangements: the best on ever more devices, and what each waits for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from suite.planner.ask import device_range
from suite.planner.grid import Column, grid_lines
from suite.planner.search.answer import Search, fixed
from suite.planner.search.options import Arrangement, arrangement, fastest_by_count
from suite.planner.show import text_lines, work_text
from suite.spec.base import Frozen
from suite.spec.workload import Workload


class CurvePoint(Frozen):
    """One number of devices; ``best`` is null where nothing fits or divides, and ``limit`` says why."""

    device: str
    devices: int
    scaling: Literal["weak", "strong"]
    best: Arrangement | None
    efficiency: float | None = Field(description="rate for each device against the smallest number that fits")
    limit: str


def curves(search: Search, text: str, workload: Workload) -> list[CurvePoint]:
    """Weak and strong curves of the first device over the best of its backends. UsageError for a range that is none."""
    counts = device_range(text)
    device = search.questions[0].hardware.name
    search = replace(search, questions=[asked for asked in search.questions if asked.hardware.name == device])
    weak = workload.model_copy(update={"scaling": "weak"})
    each = {count: _best(search, fixed(weak, count), [count])[0] for count in counts}
    strong = dict(zip(counts, _best(search, fixed(weak, counts[0]), counts), strict=True))
    return [*_points(each, device, "weak"), *_points(strong, device, "strong")]


def _best(search: Search, work: Workload, counts: Sequence[int]) -> list[Arrangement | None]:
    """The fastest arrangement on each number of devices."""
    own, best = search.band(), dict.fromkeys(counts, None)
    found: dict[int, Arrangement | None] = dict(best)
    if work.rollouts % work.group:
        return [None for _ in counts]
    for asked in search.questions:
        columns = replace(search, work=work).found(asked, list(counts))
        price = search.prices.of(asked.hardware.name)
        for index in fastest_by_count(columns):
            option = arrangement(columns, asked, [index], own, price)
            before = found[option.devices]
            if before is None or option.samples_per_second > before.samples_per_second:
                found[option.devices] = option
    return [found[count] for count in counts]


def _points(
    best: dict[int, Arrangement | None], device: str, scaling: Literal["weak", "strong"]
) -> Iterator[CurvePoint]:
    base = next((option for option in best.values() if option is not None), None)
    for count, option in best.items():
        if option is None or base is None:
            limit = "nothing fits or divides"
            yield CurvePoint(device=device, devices=count, scaling=scaling, best=None, efficiency=None, limit=limit)
            continue
        share = option.samples_per_second / base.samples_per_second * base.devices / option.devices
        yield CurvePoint(
            device=device, devices=count, scaling=scaling, best=option, efficiency=share, limit=option.limit
        )


def curve_lines(search: Search, points: Sequence[CurvePoint], columns: int | None) -> Iterator[str]:
    """One line for each number of devices."""
    first = points[0]
    smallest = fixed(search.work.model_copy(update={"scaling": "strong"}), 1)
    for line in (
        f"{search.questions[0].shape.name} on {first.device}, {search.work.name}: weak scaling keeps the samples of a "
        f"device, strong scaling those of {first.devices:,} in all",
        f"one iteration: {work_text(smallest, [])}",
    ):
        yield from text_lines(line, columns)
    shown = [
        Column("scaling", [point.scaling for point in points], left=True),
        Column("devices", [f"{point.devices:,}" for point in points]),
        Column("arrangement", [_label(point) for point in points], 2, left=True),
        Column("samples/s", [f"{point.best.samples_per_second:.4g}" if point.best else "-" for point in points]),
        Column(
            "range", [f"{point.best.low:.3g} to {point.best.high:.3g}" if point.best else "-" for point in points], 3
        ),
        Column("s/iter", [f"{point.best.seconds:.1f}" if point.best else "-" for point in points], 4),
        Column("eta", ["-" if point.efficiency is None else f"{point.efficiency:.2f}" for point in points]),
        Column("limit", [point.limit for point in points], left=True),
    ]
    yield from grid_lines(shown, columns)


def _label(point: CurvePoint) -> str:
    if point.best is None:
        return "-"
    if point.best.placement == "colocated":
        return "colocated"
    return f"split {point.best.training_devices}+{point.best.generation_devices}"
