"""Scaling curves: the best on ever more devices, and what each waits for."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from pydantic import Field

from suite.planner.ask import Question
from suite.planner.found import Found, layouts
from suite.planner.option import Option, options
from suite.spec.base import Frozen
from suite.spec.workload import Workload

Scaling = Literal["weak", "strong"]
#: Candidates of some work on each of some numbers of devices, by each backend.
Look = Callable[[Workload, Sequence[int]], Sequence[Found]]


class CurvePoint(Frozen):
    """One number of devices; ``best`` is null where nothing fits or divides, and ``limit`` says why."""

    device: str
    devices: int
    scaling: Scaling
    best: Option | None
    efficiency: float | None = Field(description="rate for each device against the smallest number that fits")
    limit: str


def look_at(asked: Question) -> Look:
    """The layouts of one backend, as a run of it generates."""
    return lambda work, counts: [layouts(replace(asked, workload=work), counts)]


def curves(look: Look, counts: Sequence[int], workload: Workload, device: str) -> list[CurvePoint]:
    """Weak and strong curves. Strong scaling keeps the samples that the smallest number has in all."""
    weak = workload.model_copy(update={"scaling": "weak"})
    each = {count: _best(look, fixed(weak, count), [count])[0] for count in counts}
    strong = dict(zip(counts, _best(look, fixed(weak, counts[0]), counts), strict=True))
    return [*_points(each, device, "weak"), *_points(strong, device, "strong")]


def fixed(workload: Workload, devices: int) -> Workload:
    """The work with its samples in all, as ``devices`` devices have it."""
    return workload.model_copy(update={"rollouts": workload.global_rollouts(devices), "scaling": "strong"})


def _best(look: Look, work: Workload, counts: Sequence[int]) -> list[tuple[Option | None, str]]:
    """The fastest on each number of devices, or why there is none."""
    if work.rollouts % work.group:
        return [(None, "no whole groups of samples") for _ in counts]
    every = look(work, counts)
    considered = {int(count) for found in every for count in set(found.devices.tolist())}
    fastest = [each for found in every for each in options(found, [[one] for one in found.fastest_by_count()], None)]
    fastest.sort(key=lambda option: -option.samples_per_second)
    best = {count: next((option for option in fastest if option.devices == count), None) for count in counts}
    none = {count: "device memory" if count in considered else "global batch too small" for count in counts}
    return [(best[count], none[count]) for count in counts]


def _points(best: dict[int, tuple[Option | None, str]], device: str, scaling: Scaling) -> Iterator[CurvePoint]:
    base = next((option for option, _ in best.values() if option is not None), None)
    for count, (option, why) in best.items():
        efficiency = None
        if option is not None and base is not None:
            efficiency = option.samples_per_second / base.samples_per_second * base.devices / option.devices
        limit = why if option is None else option.limit
        yield CurvePoint(device=device, devices=count, scaling=scaling, best=option, efficiency=efficiency, limit=limit)
