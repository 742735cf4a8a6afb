"""The answer to `suite plan`: layouts that fit, best first, and why the next better one does not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from suite.planner.formulas.offload import SWAP_HOST_BYTES
from suite.planner.hardware import Hardware
from suite.planner.host_memory import host_memory
from suite.planner.iteration import phase_seconds, step_parts_of
from suite.planner.iteration_memory import PARTS, engine_waves, iteration_memory
from suite.planner.jobs import Column
from suite.planner.lengths import MOST_DRAWN, SEED
from suite.planner.parameters import Band, Parameters, RateBand
from suite.planner.profiles import Profile
from suite.planner.space import USUAL, Manner, Space, candidates
from suite.spec.algorithms import PPO_NAME
from suite.spec.base import Frozen
from suite.spec.layout import Layout
from suite.spec.manifest import Work
from suite.spec.phases import TIMED_NAMES
from suite.spec.resolve import sample_lengths
from suite.spec.shape import Shape
from suite.spec.workload import Workload
from suite.theory.flops import iteration_flops
from suite.theory.memory import memory_floor

Objective = Literal["throughput", "cost", "latency"]
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
    memory_error = parameters.bands["memory"].p90
    measure = table.measure(objective)
    order = np.lexsort((table.total, measure))
    fitting = order[table.fits[order]]
    chosen = _twins(table, _distinct(space, fitting), fold_twins)[:most]
    made = [
        _option(space, table, index, shape, workload, hardware, price, power_watts, memory_error, others)
        for index, *others in chosen
    ]
    ahead = order[~table.fits[order]]
    if len(fitting):
        ahead = ahead[measure[ahead] < measure[fitting[0]]]
    closest = int(ahead[table.total[ahead].argmin()]) if not len(fitting) and len(ahead) else None
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
        nearest=None
        if closest is None
        else _option(space, table, closest, shape, workload, hardware, price, power_watts, memory_error),
        band=parameters.bands["new stack"],
        memory_band=parameters.bands["memory"],
        rate_band=parameters.ppo if _is_like_published(space, workload) and not parameters.phases else None,
        notes=_notes(hardware, space, devices, shape, workload, profile, parameters),
    )


def _is_like_published(space: Space, workload: Workload) -> bool:
    """Whether published rates of whole iterations are of such work: PPO on even lengths, generated by the stack."""
    return workload.algorithm.name == PPO_NAME and not workload.uneven and not space.work.engine


class Table:
    """Predictions of a space, as columns."""

    def __init__(
        self,
        seconds: Mapping[str, Column],
        training: Mapping[str, Column],
        memory: Mapping[str, Column],
        host: Column,
        space: Space,
    ) -> None:
        self.seconds, self.training, self.memory, self.host = seconds, training, memory, host
        self.iteration = np.asarray(sum(seconds[phase] for phase in TIMED_NAMES if phase in seconds))
        self.total = np.asarray(sum(memory.values()))
        self.fits = self.total <= space.work.jobs.capacity
        self.samples = space.choices["rollouts"] * space.choices["data"]
        self.rate = self.samples / self.iteration
        self.devices = space.choices["devices"]
        self.sample_tokens = space.work.sample_tokens
        self.per_device = self.devices / self.rate

    def measure(self, objective: Objective) -> Column:
        """What is minimised: seconds per sample, device-seconds per sample, or seconds per iteration."""
        return {"throughput": 1 / self.rate, "cost": self.per_device, "latency": self.iteration}[objective]


def predict(
    space: Space, hardware: Hardware, profile: Profile, parameters: Parameters, slower: Column | None = None
) -> Table:
    """Seconds and bytes of every candidate, stacks' effects in; ``slower`` in place of the fitted factor."""
    device = hardware.name.split("-")[0]
    known = profile.traits
    groups = {"family": known.family, "framework": known.framework, "framework|device": f"{known.framework}|{device}"}
    factor = float(np.exp(parameters.effect(groups)))
    known_factor = parameters.ppo.slower if parameters.ppo and profile.plain_model else 1.0
    work = replace(space.work, slower=known_factor if slower is None else slower)
    own, apart = parameters.phases, frozenset[str]()
    if work.engine:  # it is no part of the training stack, whose effects are not its own
        work = replace(work, waves=engine_waves(work, parameters.memory, profile))
        apart = frozenset(("sync", "prefill", "decode", "generate"))
    parts = {"prefill": "generate", "decode": "generate", "swap": "reference"}
    seconds = {
        name: column * (1.0 if name in apart else factor) * own.get(parts.get(name, name), 1.0)
        for name, column in phase_seconds(work, parameters.values).items()
    }
    training = step_parts_of(work, parameters.values)
    training = {name: column * factor * own.get("train", 1.0) for name, column in training.items()}
    memory = iteration_memory(work, parameters.memory, profile)
    memory = {name: column * parameters.memory_factor for name, column in memory.items()}
    return Table(seconds, training, memory, host_memory(space.work, profile), space)


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
    memory_error: float,
    twins: Sequence[int] = (),
) -> Option:
    node_devices = hardware.node_devices if hardware.node_devices < 16 else 8
    layout = space.layout(index, node_devices)
    seconds, samples = float(table.iteration[index]), float(table.samples[index])
    micro = int(space.choices["micro_batch"][index])
    replica = int(space.choices["rollouts"][index])
    work = _looked_at(workload, int(samples), replica, micro)
    flops = samples / work.global_rollouts * iteration_flops(shape, workload, work.global_rollouts).model
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
        tight=bool(table.total[index] > (1 - memory_error) * hardware.memory_bytes),
        floor_bytes=memory_floor(shape, workload, work, layout, "bf16").bytes,
        memory=memory,
        seconds=seconds,
        phases={name: float(column[index]) for name, column in table.seconds.items()},
        training={name: float(column[index]) for name, column in table.training.items() if column[index] > 0},
        samples_per_second=rate,
        tokens_per_second=rate * float(table.sample_tokens[index]),
        mfu=flops / seconds / (layout.ranks * hardware.peak),
        kilowatt_hours=power_watts * layout.ranks * seconds / 3.6e6 if power_watts else None,
        cost_per_1000_samples=price * layout.ranks / 3600 / rate * 1000 if price is not None else None,
        largest_part=max(memory, key=lambda kind: memory[kind]),
        host_memory_bytes=int(table.host[index] / layout.nodes),
        twins=[space.layout(twin, node_devices).label() for twin in twins],
    )


def _looked_at(workload: Workload, samples: int, replica: int, micro: int) -> Work:
    """The work of an option, of as many replicas as lengths are drawn for."""
    if workload.uneven and samples > MOST_DRAWN:
        step = math.lcm(replica, workload.group)
        samples = step * max(1, MOST_DRAWN // step)
    return Work(
        global_rollouts=samples,
        replica_rollouts=replica,
        replica_batch=replica // workload.optimizer_steps,
        micro_batch=micro,
        lengths=sample_lengths(workload, samples, SEED),
    )


def _miss(space: Space, table: Table, index: int, hardware: Hardware) -> Miss:
    label = space.layout(index, hardware.node_devices if hardware.node_devices < 16 else 8).label()
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


def _work_notes(space: Space, workload: Workload) -> list[str]:
    """What is assumed of uneven lengths and of the algorithm."""
    notes = []
    if workload.uneven and len(space.work.jobs):
        mean, decoding, manner = float(space.work.sample_tokens[0]), space.work.decoding, space.manner
        passes = "laid end to end" if manner.packing else "padded to the longest sample of each micro batch"
        dealt = "replicas have equal tokens" if manner.balance else "the replica with most tokens is waited for"
        rows = "drops samples as they end" if space.work.engine else "keeps every row until then"
        notes.append(
            f"lengths as drawn for seed {SEED}: {mean:,.0f} tokens in a mean sample, the longest response "
            f"{decoding.new.max():,.0f}, until which a replica decodes ({rows}); passes are {passes}; {dealt}"
        )
    if not workload.uses_values:
        reference = "" if workload.uses_reference else " and no reference policy"
        notes.append(f"{workload.algorithm.name} has no value head, no critic{reference}: none is counted")
    return notes


def _notes(
    hardware: Hardware,
    space: Space,
    devices: Sequence[int],
    shape: Shape,
    workload: Workload,
    profile: Profile,
    parameters: Parameters,
) -> list[str]:
    notes = ["a prediction, not a measurement: nothing in it was run"]
    if not profile.plain_model and not parameters.phases:
        notes.append(
            f"no published PPO rate is of a stack like {profile.name}: it is taken to compute as fast as in published "
            "pre-training; DeepSpeed backends are not, by DeepSpeed-Chat's rates, so the two do not compare by this"
        )
    if parameters.phases:
        learnt = ", ".join(f"{name} x {factor:.2f}" for name, factor in sorted(parameters.phases.items()))
        notes.append(f"calibrated on your runs: {learnt}, memory x {parameters.memory_factor:.2f}")
    if space.work.swapped:
        notes.append(
            f"{profile.name} keeps an fp32 reference and a copy of the policy in pinned host memory, "
            f"{SWAP_HOST_BYTES * space.work.swapped / 1e9:.0f} GB for each data parallel replica; the reference phase "
            "includes moving them over PCIe"
        )
    if hardware.architecture in ("volta", "other"):
        notes.append(f"no published step time of {hardware.name} is in the fit: its matrix rate is an assumption")
    notes += _work_notes(space, workload)
    if not _is_like_published(space, workload):
        notes.append("no published rate of whole iterations of this kind was compared with what is predicted")
    if shape.experts is not None:
        notes.append(
            "no published step time of a mixture of experts is in the fit: experts are taken to be chosen alike often, "
            "and their products to be as fast as those of a dense model"
        )
    if space.work.engine:
        notes.append(
            "generation by vLLM is a first model by bandwidth and FLOPs alone, checked against no published row: no "
            "launches, no scheduling, no cost of sleep, so it may well take longer; sync is one copy of the weights"
        )
    if not len(space.work.jobs) and all(workload.global_rollouts(count) % workload.group for count in devices):
        notes.append(f"the samples of an iteration do not divide into groups of {workload.group}: change --rollouts")
    elif not len(space.work.jobs):
        notes.append(f"no layout divides the model and the work on {', '.join(map(str, devices))} devices")
    return notes
