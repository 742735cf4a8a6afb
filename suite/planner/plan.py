"""The answer to `suite plan`: layouts that fit, best first, and why the next better one does not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from pydantic import Field

from suite.planner.hardware import Hardware
from suite.planner.iteration_memory import PARTS
from suite.planner.jobs import Column
from suite.planner.lengths import MOST_DRAWN, as_samples, drawn
from suite.planner.notes import is_like_published, plan_notes
from suite.planner.parameters import Band, Parameters, RateBand
from suite.planner.profiles import Profile
from suite.planner.space import USUAL, Manner, Space, candidates
from suite.planner.table import Bands, Objective, Table, bands_of, predict
from suite.spec.base import Frozen
from suite.spec.layout import Layout
from suite.spec.manifest import Work
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.flops import iteration_flops
from suite.theory.memory import memory_floor

GIB = 2**30


class Option(Frozen):
    """One layout with what it is predicted to need and to give. Times are of one iteration."""

    layout: Layout
    label: str
    devices: int
    micro_batch: int
    fits: bool
    memory_bytes: int = Field(description="of the fullest device, context and buffers in")
    capacity_bytes: int
    floor_bytes: int = Field(description="the strict lower bound of docs/measuring.md")
    tight: bool = Field(description="nearer to the capacity than the memory model's 90th percentile of error")
    memory: dict[str, int] = Field(description="bytes by part in the most demanding phase")
    seconds: float
    phases: dict[str, float]
    training: dict[str, float] = Field(description="seconds of the training phase by part")
    samples_per_second: float
    low: float = Field(description="lower end of the rate's 80 % band")
    high: float = Field(description="upper end of it")
    tokens_per_second: float
    mfu: float
    kilowatt_hours: float | None = Field(description="devices at their power limit for one iteration")
    cost_per_1000_samples: float | None
    largest_part: str
    host_memory_bytes: int = Field(default=0, description="of one node: what is offloaded to it")
    twins: list[str] = Field(default=[], description="labels of layouts that are predicted to do exactly the same")


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
    band: Band = Field(description="relative errors of step time seen where the stack had not been seen")
    memory_band: Band
    rate_band: RateBand | None = Field(description="published over predicted samples per second of whole iterations")
    calibrated: int = Field(default=0, description="configurations of own runs that taught; 0: none")
    notes: list[str]


def make_plan(
    shape: Shape,
    workload: Workload,
    hardware: Hardware,
    profile: Profile,
    devices: Sequence[int],
    parameters: Parameters,
    *,
    objective: Objective = "throughput",
    price: float | None = None,
    most: int = 8,
    power_watts: float | None = None,
    fold_twins: bool = False,
    manner: Manner = USUAL,
) -> Plan:
    """Rank every layout of the backend on each number of devices. ``price`` is money per device and hour.

    ``fold_twins``: of layouts with one prediction the first stands for all and names the others. ``manner``: what is
    not searched over.
    """
    space = candidates(shape, workload, hardware, profile, devices, manner)
    table = predict(space, hardware, profile, parameters)
    measure, order = _ranked(table, objective)
    rate_band = parameters.ppo if is_like_published(space, workload) and not parameters.phases else None
    bands = bands_of(space, table, hardware, profile, parameters, rate_band)
    fitting = order[table.fits[order]]
    chosen = _twins(table, _distinct(space, fitting), fold_twins)[:most]
    flops = _flops(shape, workload, table, [index for index, *_ in chosen])
    made = [
        _option(space, table, index, shape, workload, hardware, price, power_watts, bands, flops, others)
        for index, *others in chosen
    ]
    ahead = order[~table.fits[order]]
    if len(fitting):
        ahead = ahead[measure[ahead] < measure[fitting[0]]]
    closest = int(ahead[table.total[ahead].argmin()]) if not len(fitting) and len(ahead) else None
    nearest = None
    if closest is not None:
        flops = _flops(shape, workload, table, [closest])
        nearest = _option(space, table, closest, shape, workload, hardware, price, power_watts, bands, flops)
    return Plan(
        size=shape.name,
        backend=profile.name,
        device=hardware.name,
        workload=workload.name,
        work=workload,
        objective=objective,
        considered=len(space.work.jobs),
        fitting=len(fitting),
        options=made,
        misses=[
            _miss(space, table, index, hardware) for index, *_ in _twins(table, _distinct(space, ahead), fold_twins)[:3]
        ],
        nearest=nearest,
        band=parameters.bands["new stack"],
        memory_band=parameters.bands["memory"],
        rate_band=rate_band,
        calibrated=parameters.learnt.configurations if parameters.learnt else 0,
        notes=plan_notes(hardware, space, devices, shape, workload, profile, parameters),
    )


class Fitting(NamedTuple):
    """A layout that fits, its micro batch, and whether it is tight as an ``Option`` is."""

    layout: Layout
    micro_batch: int
    tight: bool


def fitting_on(
    shape: Shape,
    workload: Workload,
    hardware: Hardware,
    profile: Profile,
    devices: int,
    parameters: Parameters,
    manner: Manner,
) -> list[Fitting]:
    """Layouts that fit this number of devices, best first, as ``make_plan`` ranks them, and nothing else of them."""
    space = candidates(shape, workload, hardware, profile, [devices], manner)
    table = predict(space, hardware, profile, parameters)
    _, order = _ranked(table, "throughput")
    room = (1 - parameters.bands["memory"].p90) * hardware.memory_bytes
    return [
        Fitting(
            space.layout(index, _node_devices(hardware)),
            int(space.choices["micro_batch"][index]),
            bool(table.total[index] > room),
        )
        for index in _distinct(space, order[table.fits[order]])
    ]


def _ranked(table: Table, objective: Objective) -> tuple[Column, Column]:
    """What is minimised, and candidates from the best on."""
    measure = table.measure(objective)
    return measure, np.lexsort((table.total, measure))


def _flops(shape: Shape, workload: Workload, table: Table, chosen: Sequence[int]) -> dict[int, float]:
    """FLOPs of an iteration by its number of samples, of candidates that are ``chosen``."""
    found: dict[int, float] = {}
    for samples in {int(table.samples[index]) for index in chosen}:
        looked_at = _looked_at(workload, samples, 1)
        found[samples] = samples / looked_at * iteration_flops(shape, workload, looked_at).model
    return found


def _looked_at(workload: Workload, samples: int, replica: int) -> int:
    """Of how many samples lengths are drawn: all, or as many replicas as ``MOST_DRAWN`` has room for."""
    if not workload.uneven or samples <= MOST_DRAWN:
        return samples
    step = math.lcm(replica, workload.group)
    return step * max(1, MOST_DRAWN // step)


def _node_devices(hardware: Hardware) -> int:
    return hardware.node_devices if hardware.node_devices < 16 else 8


def _distinct(space: Space, order: Column) -> list[int]:
    """The best micro batch of each layout."""
    names = [name for name in space.choices if name not in ("micro_batch", "rollouts")]
    seen: set[tuple[float, ...]] = set()
    kept = []
    for index in order.tolist():
        key = tuple(float(space.choices[name][index]) for name in names)
        if key not in seen:
            seen.add(key)
            kept.append(index)
        if len(kept) >= 64:
            break
    return kept


def _twins(table: Table, order: Sequence[int], fold: bool) -> list[list[int]]:
    """Candidates in their order, each with those behind it that are predicted to take the same time and memory."""
    if not fold:
        return [[index] for index in order]
    alike: dict[tuple[str, ...], list[int]] = {}
    for index in order:
        columns = (table.devices, table.iteration, table.samples, table.total, table.host)
        same = [column[index] for column in columns]
        alike.setdefault(tuple(f"{value:.9g}" for value in same), []).append(index)
    return list(alike.values())


def _option(
    space: Space,
    table: Table,
    index: int,
    shape: Shape,
    workload: Workload,
    hardware: Hardware,
    price: float | None,
    power_watts: float | None,
    bands: Bands,
    flops: Mapping[int, float],
    twins: Sequence[int] = (),
) -> Option:
    node_devices = _node_devices(hardware)
    layout = space.layout(index, node_devices)
    seconds, samples = float(table.iteration[index]), float(table.samples[index])
    micro = int(space.choices["micro_batch"][index])
    replica = int(space.choices["rollouts"][index])
    looked_at = _looked_at(workload, int(samples), replica)
    work = Work(
        global_rollouts=looked_at,
        replica_rollouts=replica,
        replica_batch=replica // workload.optimizer_steps,
        micro_batch=micro,
        lengths=as_samples(drawn(workload, looked_at)),
    )
    memory = {kind: int(table.memory[kind][index]) for kind in PARTS if table.memory[kind][index] >= 1}
    rate = samples / seconds
    return Option(
        layout=layout,
        label=layout.label(),
        devices=layout.ranks,
        micro_batch=micro,
        fits=bool(table.fits[index]),
        memory_bytes=int(table.total[index]),
        capacity_bytes=int(hardware.memory_bytes),
        tight=bool(table.total[index] > (1 - bands.memory) * hardware.memory_bytes),
        floor_bytes=memory_floor(shape, workload, work, layout, "bf16").bytes,
        memory=memory,
        seconds=seconds,
        phases={name: float(column[index]) for name, column in table.seconds.items()},
        training={name: float(column[index]) for name, column in table.training.items() if column[index] > 0},
        samples_per_second=rate,
        low=rate * float(bands.low[index]),
        high=rate * float(bands.high[index]),
        tokens_per_second=rate * float(table.sample_tokens[index]),
        mfu=flops[int(samples)] / seconds / (layout.ranks * hardware.peak),
        kilowatt_hours=power_watts * layout.ranks * seconds / 3.6e6 if power_watts else None,
        cost_per_1000_samples=price * layout.ranks / 3600 / rate * 1000 if price is not None else None,
        largest_part=max(memory, key=lambda kind: memory[kind]),
        host_memory_bytes=int(table.host[index] / layout.nodes),
        twins=[space.layout(twin, node_devices).label() for twin in twins],
    )


def _miss(space: Space, table: Table, index: int, hardware: Hardware) -> Miss:
    label = space.layout(index, _node_devices(hardware)).label()
    missing = float(table.total[index]) - hardware.memory_bytes
    memory = {kind: float(table.memory[kind][index]) for kind in PARTS}
    largest = max(memory, key=lambda kind: memory[kind])
    micro = int(space.choices["micro_batch"][index])
    return Miss(
        label=label,
        samples_per_second=float(table.rate[index]),
        missing_bytes=int(missing),
        largest_part=largest,
        text=f"{label} (micro batch {micro}) misses by {missing / GIB:.1f} GiB per device: {largest} take "
        f"{memory[largest] / GIB:.1f} GiB",
    )
