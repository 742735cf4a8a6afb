"""The answer to `suite plan`: layouts that fit, best first, and why the next better one does not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import Field

from suite.planner.found import Found, Objective, layouts
from suite.planner.memory import GIB, PARTS
from suite.planner.notes import plan_notes
from suite.planner.option import Option, chosen, distinct, label_of, options
from suite.planner.parameters import Band
from suite.spec.base import Frozen
from suite.spec.workload import Workload

if TYPE_CHECKING:
    from suite.planner.ask import Question


class Miss(Frozen):
    """A layout that would be better and does not fit."""

    label: str
    samples_per_second: float
    missing_bytes: int
    largest_part: str
    text: str


class Plan(Frozen):
    """Options that fit, best first, of everything that was considered."""

    size: str
    backend: str
    device: str
    workload: str
    work: Workload = Field(description="the work that is planned")
    objective: Objective
    considered: int
    fitting: int
    options: list[Option]
    misses: list[Miss]
    nearest: Option | None = Field(description="where nothing fits: what comes closest")
    band: Band = Field(description="of iterations: the one that applies to this stack on this device")
    memory_band: Band
    calibrated: int = Field(default=0, description="configurations of own runs that taught; 0: none")
    notes: list[str]


def make_plan(
    asked: Question,
    devices: Sequence[int],
    *,
    objective: Objective = "throughput",
    price: float | None = None,
    most: int = 8,
) -> Plan:
    """Rank every layout of the backend on each number of devices. ``price`` is money per device and hour."""
    found = layouts(asked, devices)
    order, fits, parameters = found.order(objective), found.told.fits, asked.parameters
    fitting = order[fits[order]]
    measure = found.measure(objective)
    ahead = order[~fits[order]]
    if len(fitting):
        ahead = ahead[measure[ahead] < measure[fitting[0]]]
    nearest = None
    if not len(fitting) and len(ahead):
        closest = int(ahead[found.told.memory.total[ahead].argmin()])
        nearest = options(found, [[closest]], price)[0]
    stack, kind = asked.profile.stack, asked.hardware.architecture
    best = chosen(found, distinct(found, fitting), most, price)
    return Plan(
        size=asked.shape.name,
        backend=asked.profile.name,
        device=asked.hardware.name,
        workload=asked.workload.name,
        work=asked.workload,
        objective=objective,
        considered=len(found),
        fitting=len(fitting),
        options=best,
        misses=_misses(found, distinct(found, ahead)),
        nearest=nearest,
        band=parameters.band("iteration", stack, kind),
        memory_band=parameters.band("memory", stack, kind),
        calibrated=parameters.learnt.configurations if parameters.learnt else 0,
        notes=plan_notes(asked, found.space, devices, best[0] if best else None),
    )


def _misses(found: Found, ahead: Sequence[int], most: int = 3) -> list[Miss]:
    """The best of what does not fit; of layouts with one prediction the first."""
    made: dict[tuple[float, float], Miss] = {}
    for index in ahead:
        miss = _miss(found, index)
        made.setdefault((round(miss.samples_per_second, 9), miss.missing_bytes), miss)
        if len(made) == most:
            break
    return list(made.values())


def _miss(found: Found, index: int) -> Miss:
    label, total = label_of(found, index), found.told.memory.total
    missing = float(total[index]) - found.asked.hardware.memory_bytes
    memory = {part: float(found.told.memory.parts[part][index]) for part in PARTS}
    largest = max(memory, key=lambda part: memory[part])
    micro = int(found.space.choices["micro_batch"][found.pairs.t[index]])
    return Miss(
        label=label,
        samples_per_second=float(found.rate[index]),
        missing_bytes=int(missing),
        largest_part=largest,
        text=f"{label} (micro batch {micro}) misses by {missing / GIB:.1f} GiB per device: {largest} take "
        f"{memory[largest] / GIB:.1f} GiB",
    )


def fitting_on(asked: Question, devices: int) -> list[Option]:
    """Layouts that fit this number of devices, best first."""
    found = layouts(asked, [devices])
    return options(found, [[place] for place in distinct(found, found.ranked("throughput"))], None)
