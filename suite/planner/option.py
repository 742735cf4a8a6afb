"""One candidate as it is shown: what it is, what it needs and gives, and what limits it."""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from suite.planner.found import Found
from suite.planner.iteration import LIMITS
from suite.planner.lengths import looked_at
from suite.planner.memory import PARTS, host_memory
from suite.spec.base import Frozen
from suite.spec.layout import Layout
from suite.theory.flops import iteration_flops

#: The same prediction to so many digits is one.
_ALIKE = 6


class Option(Frozen):
    """One way to run an iteration, with what it is predicted to need and to give. Times are of one iteration."""

    backend: str
    device: str
    devices: int
    placement: Literal["colocated", "split"]
    training_devices: int
    generation_device: str = Field(description="kind of device that generates")
    generation_devices: int = Field(description="devices that generate: all of them where colocated")
    generation: Literal["hf", "vllm"]
    generation_tensor: int | None = Field(description="tensor parallel degree of an engine; null: the stack's own loop")
    staleness: int
    label: str
    layout: Layout
    context: int = Field(description="context parallel degree; its ranks are among the layout's data parallel ones")
    chunks: int = Field(description="parts of the model that a stage of the pipeline holds, interleaved")
    micro_batch: int
    fits: bool
    tight: bool = Field(description="too large for the device at the high end of the memory model's band")
    memory_bytes: int = Field(description="of the fullest device that trains, context and buffers in")
    generation_memory_bytes: int = Field(description="of the fullest device that generates")
    capacity_bytes: int
    memory: dict[str, int] = Field(description="bytes by part in the most demanding phase")
    host_memory_bytes: int = Field(description="of one node that trains: what is offloaded to it")
    seconds: float
    phases: dict[str, float]
    training: dict[str, float] = Field(description="seconds of the training phase by part")
    samples_per_second: float
    low: float = Field(description="where four of five measured rates like this lay, from")
    high: float = Field(description="and to")
    tokens_per_second: float
    mfu: float
    kilowatt_hours: float | None = Field(description="devices at their power limit for one iteration")
    price: float | None = Field(description="money for one device and hour")
    cost_per_hour: float | None
    cost_per_1000_samples: float | None
    limit: str
    twins: list[str] = Field(default=[], description="labels of candidates that are predicted to do the same")

    @property
    def fullest_bytes(self) -> int:
        """Of the fullest device of the kind that trains."""
        apart = self.generation_device != self.device
        return self.memory_bytes if apart else max(self.memory_bytes, self.generation_memory_bytes)


def alike(found: Found, order: Sequence[int], most: int) -> list[list[int]]:
    """At most ``most`` groups of the candidates in their ``order``; those with one prediction are one group."""
    groups: dict[tuple[str, ...], list[int]] = {}
    memory = found.told.memory
    host = host_memory(found.space.work)[found.pairs.t]
    for index in order:
        columns = (found.devices, found.told.seconds, found.samples, memory.total, found.split, host)
        key = tuple(f"{column[index]:.{_ALIKE}g}" for column in columns)
        if key not in groups and len(groups) == most:
            break
        groups.setdefault(key, []).append(int(index))
    return list(groups.values())


def distinct(found: Found, order: Iterable[int], most: int = 64) -> list[int]:
    """The best micro batch of each layout, in order."""
    choices = {name: column for name, column in found.space.choices.items() if name not in ("micro_batch", "rollouts")}
    kept: dict[tuple[float, ...], int] = {}
    for index in map(int, order):
        t, g = found.pairs.t[index], found.pairs.g[index]
        engine = (float(g), float(found.split[index])) if found.gen is not found.space.gen else ()
        key = (*(float(column[t]) for column in choices.values()), *engine)
        kept.setdefault(key, index)
        if len(kept) == most:
            break
    return list(kept.values())


def options(found: Found, groups: Sequence[Sequence[int]], price: float | None) -> list[Option]:
    """The first of each group, the others its twins."""
    firsts = [group[0] for group in groups]
    low, high = found.bands(firsts) if firsts else (np.zeros(0), np.zeros(0))
    flops = {samples: _flops(found, int(samples)) for samples in {found.samples[index] for index in firsts}}
    return [
        _option(found, group, price, (float(low[place]), float(high[place])), flops[found.samples[group[0]]])
        for place, group in enumerate(groups)
    ]


def _option(found: Found, group: Sequence[int], price: float | None, band: tuple[float, float], flops: float) -> Option:
    index = group[0]
    asked, told, space = found.asked, found.told, found.space
    hardware, other, t = asked.hardware, asked.other or asked.hardware, int(found.pairs.t[index])
    devices, split = int(found.devices[index]), bool(found.split[index])
    engine = bool(found.gen.engine[found.pairs.g[index]] > 0)
    layout, rate, seconds = layout_of(found, index), float(found.rate[index]), float(told.seconds[index])
    memory = {part: int(told.memory.parts[part][index]) for part in PARTS if told.memory.parts[part][index] >= 1}
    tensor = int(found.gen.tensor[found.pairs.g[index]])
    train_on = int(space.choices["devices"][t])
    factor = float(space.work.factor("training"))
    watts = None if asked.other else hardware.power_watts
    hourly = None if price is None else price * float(found.priced[index])
    memory_band = asked.parameters.band("memory", asked.profile.stack, hardware.architecture)
    return Option(
        backend=asked.profile.name,
        device=hardware.name,
        devices=devices,
        placement="split" if split else "colocated",
        training_devices=train_on,
        generation_device=other.name,
        generation_devices=devices - train_on if split else devices,
        generation="vllm" if engine else "hf",
        generation_tensor=tensor if engine else None,
        staleness=int(found.pairs.staleness[index]),
        label=label_of(found, index),
        layout=layout,
        context=int(space.choices["context"][t]),
        chunks=int(space.choices["chunks"][t]),
        micro_batch=int(space.choices["micro_batch"][t]),
        fits=bool(told.fits[index]),
        tight=bool(told.memory.total[index] * memory_band.high > hardware.memory_bytes),
        memory_bytes=int(told.memory.total[index]),
        generation_memory_bytes=int(told.memory.engine[index]),
        capacity_bytes=int(hardware.memory_bytes),
        memory=memory,
        host_memory_bytes=int(host_memory(space.work)[t] / max(1, train_on // layout.devices_per_node)),
        seconds=seconds,
        phases={name: float(column[index]) for name, column in told.phases.items() if column[index] > 0},
        training={name: factor * float(column[index]) for name, column in told.training.items() if column[index] > 0},
        samples_per_second=rate,
        low=rate * band[0],
        high=rate * band[1],
        tokens_per_second=rate * float(space.sample_tokens[t]),
        mfu=flops / seconds / (train_on * hardware.peak + (devices - train_on) * other.peak),
        kilowatt_hours=None if watts is None else watts * devices * seconds / 3.6e6,
        price=price,
        cost_per_hour=hourly,
        cost_per_1000_samples=None if hourly is None else hourly / 3600 / rate * 1000,
        limit=LIMITS[int(told.limit[index])],
        twins=[label_of(found, twin) for twin in group[1:]],
    )


def _flops(found: Found, samples: int) -> float:
    """FLOPs of an iteration, by those of as many samples as are looked at."""
    workload = found.asked.workload
    some = looked_at(workload, samples) if workload.uneven else samples
    return samples / some * iteration_flops(found.asked.shape, workload, some).model


def layout_of(found: Found, index: int) -> Layout:
    """The layout as `suite run` takes it; an engine's own tensor degree is no part of it."""
    t, node = int(found.pairs.t[index]), found.asked.hardware.node_devices
    node = node if node < 16 else 8
    if found.gen is found.space.gen:
        return found.space.layout(t, node)
    devices, engine = int(found.devices[index]), {"generation": "vllm", "engine_sleep": True}
    if found.split[index]:
        rest, staleness = devices - int(found.space.choices["devices"][t]), int(found.pairs.staleness[index])
        engine = {"generation": "vllm", "placement": "split", "generation_ranks": rest, "staleness": staleness}
    return found.space.layout(t, node, devices, **engine)


def label_of(found: Found, index: int) -> str:
    """``split 8+8 async1, tp2 dp4, vllm 8 x tp1``: numbers of devices that train and that generate."""
    t, g = int(found.pairs.t[index]), int(found.pairs.g[index])
    own = found.space.label(t)
    if found.gen is found.space.gen:
        return own
    tensor, rest = int(found.gen.tensor[g]), int(found.gen.devices[g])
    engine = f"vllm {rest // tensor} x tp{tensor}" + (f" on {found.asked.other.name}" if found.asked.other else "")
    if not found.split[index]:
        return f"colocated, {own}, {engine}"
    staleness = int(found.pairs.staleness[index])
    age = f" async{staleness}" if staleness else ""
    return f"split {int(found.space.choices['devices'][t])}+{rest}{age}, {own}, {engine}"


def front(every: Sequence[Option]) -> list[Option]:
    """Those that no other beats in rate, devices and cost (where all have prices) at once: fewest devices first."""
    priced = all(option.cost_per_1000_samples is not None for option in every)

    def key(option: Option) -> tuple[float, ...]:
        cost = [option.cost_per_1000_samples or 0.0] if priced else []
        return (-option.samples_per_second, float(option.devices), *cost)

    keys = [key(option) for option in every]
    kept = [
        option
        for option, mine in zip(every, keys, strict=True)
        if not any(other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in keys)
    ]
    return sorted(kept, key=lambda option: (option.devices, -option.samples_per_second))
