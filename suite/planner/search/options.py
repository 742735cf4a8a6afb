"""Arrangements chosen from many: what each is, what limits it, and the front of those that nothing beats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from suite.planner import rl_iteration
from suite.planner.ask import Question
from suite.planner.jobs import Column
from suite.planner.learnt import deviation, four_fifths
from suite.planner.parameters import Learnt, Parameters
from suite.planner.plan import GIB
from suite.planner.scale import LIMITS
from suite.planner.search.arrangements import Found
from suite.planner.search.sides import PHASE_OF
from suite.planner.table import predict
from suite.spec.base import Frozen
from suite.spec.layout import Layout

#: The same prediction to so many digits is one.
_ALIKE = 6
Band = tuple[float, float]


class Arrangement(Frozen):
    """One way to run an iteration, with what it is predicted to need and to give. Times are of one iteration."""

    backend: str
    device: str
    devices: int
    placement: Literal["colocated", "split"]
    training_devices: int
    generation_devices: int = Field(description="devices that generate: all of them where colocated")
    generation: Literal["hf", "vllm"]
    generation_tensor: int | None = Field(description="tensor parallel degree of an engine; null: the stack's own loop")
    staleness: int
    label: str
    layout: Layout
    micro_batch: int
    fits: bool
    tight: bool
    memory_bytes: int = Field(description="of the fullest device that trains")
    generation_memory_bytes: int = Field(description="of the fullest device that generates")
    capacity_bytes: int
    host_memory_bytes: int = Field(description="of one node that trains: what is offloaded to it")
    seconds: float
    phases: dict[str, float]
    training: dict[str, float] = Field(description="seconds of the training phase by part")
    training_seconds: float = Field(description="of all phases but generation and weight synchronisation")
    generation_seconds: float
    samples_per_second: float
    low: float = Field(description="where four of five measured rates like this lay, from")
    high: float = Field(description="and to")
    tokens_per_second: float
    price: float | None = Field(description="money for one device and hour")
    cost_per_hour: float | None
    cost_per_1000_samples: float | None
    limit: str
    twins: list[str] = Field(default=[], description="labels of arrangements that are predicted to do the same")


def chosen(
    found: Found, asked: Question, order: Sequence[int], most: int, band: Band, price: float | None
) -> list[Arrangement]:
    """At most ``most`` of the arrangements in their ``order``; those with one prediction are one, with its twins."""
    alike: dict[tuple[str, ...], list[int]] = {}
    for index in order:
        columns = (found.devices, found.seconds, found.memory, found.split)
        key = tuple(f"{column[index]:.{_ALIKE}g}" for column in columns)
        if key not in alike and len(alike) == most:
            break
        alike.setdefault(key, []).append(int(index))
    return [arrangement(found, asked, indices, band, price) for indices in alike.values()]


def arrangement(found: Found, asked: Question, indices: Sequence[int], band: Band, price: float | None) -> Arrangement:
    """The first of ``indices``; the others are twins. ``band``: factors on its seconds where no own runs taught."""
    index = indices[0]
    band = band if asked.parameters.learnt is None else _own_band(found, asked, index, asked.parameters.learnt)
    training, hardware = found.training, asked.hardware
    t, g = int(found.t[index]), int(found.g[index])
    layout, rate = layout_of(found, asked, index), float(found.rate[index])
    devices, split = int(found.devices[index]), bool(found.split[index])
    engines = found.engines
    tensor = None if engines is None else int(engines.tensor[g])
    phases, limit = phases_of(found, asked, index)
    room = 1 - asked.parameters.bands["memory"].p90
    train_on = int(training.devices[t])
    return Arrangement(
        backend=asked.profile.name,
        device=hardware.name,
        devices=devices,
        placement="split" if split else "colocated",
        training_devices=train_on,
        generation_devices=devices if engines is None else int(engines.devices[g]),
        generation="hf" if engines is None else "vllm",
        generation_tensor=tensor,
        staleness=int(found.staleness[index]),
        label=label_of(found, index),
        layout=layout,
        micro_batch=int(training.space.choices["micro_batch"][t]),
        fits=bool(found.fits[index]),
        tight=bool(found.memory[index] > room * hardware.memory_bytes),
        memory_bytes=int(found.memory[index]),
        generation_memory_bytes=int(found.engine_memory[index] or found.memory[index]),
        capacity_bytes=int(hardware.memory_bytes),
        host_memory_bytes=int(training.host[t] / max(1, train_on // layout.devices_per_node)),
        seconds=float(found.seconds[index]),
        phases=phases,
        training={name: float(column[t]) for name, column in training.parts.items() if column[t] > 0},
        training_seconds=sum(seconds for name, seconds in phases.items() if name not in ("generation", "sync")),
        generation_seconds=phases["generation"],
        samples_per_second=rate,
        low=rate / band[1],
        high=rate / band[0],
        tokens_per_second=rate * float(training.space.work.sample_tokens[t]),
        price=price,
        cost_per_hour=None if price is None else price * devices,
        cost_per_1000_samples=None if price is None else price * devices / 3600 / rate * 1000,
        limit=limit,
        twins=[label_of(found, twin) for twin in indices[1:]],
    )


def _own_band(found: Found, asked: Question, index: int, known: Learnt) -> Band:
    """Factors on the seconds of one arrangement, by what own runs left open of phases and constants."""
    work, own = found.work(index), asked.parameters.phases

    def seconds(other: Parameters) -> Column:
        if work is None:
            return predict(found.training.space, asked.hardware, asked.profile, other).iteration[[found.t[index]]]
        effects = {
            kind: effect + np.log(other.phases.get(PHASE_OF[kind], 1.0) / own.get(PHASE_OF[kind], 1.0))
            for kind, effect in (work.effects or {}).items()
        }
        return rl_iteration.predict(replace(work, effects=effects), other, found.rl).seconds

    wide = float(four_fifths(deviation(asked.parameters, known, seconds))[0])
    return 1 / wide, wide


def phases_of(found: Found, asked: Question, index: int) -> tuple[dict[str, float], str]:
    """Seconds by phase of one arrangement, and what it waits for most."""
    work = found.work(index)
    if work is None:
        return _own_phases(found, index)
    whole = rl_iteration.predict(work, asked.parameters, found.rl)
    phases = {name: float(column[0]) for name, column in whole.phases.items() if column[0] > 0}
    return phases, rl_iteration.LIMITS[int(whole.limit[0])]


def _own_phases(found: Found, index: int) -> tuple[dict[str, float], str]:
    """The same where the stack's own loop generates."""
    t = int(found.t[index])
    training = found.training
    whole, scoring = float(training.trained[t]), float(training.scoring[t])
    generation = float(found.generation[index])
    rest = float(found.seconds[index]) - whole - scoring - generation
    phases = {"generation": generation, "scoring": scoring, "training": whole, "host": rest}
    scale = 1 + scoring / whole
    parts = {name: float(column[t]) for name, column in training.parts.items()}
    seconds = {f"training: {limit}": scale * sum(parts.get(part, 0) for part in own) for limit, own in LIMITS.items()}
    seconds["generation: weights read at every step"] = generation
    return phases, max(seconds, key=lambda name: seconds[name])


def layout_of(found: Found, asked: Question, index: int) -> Layout:
    """The layout as `suite run` takes it; its engine's own tensor degree is no part of it."""
    t, devices = int(found.t[index]), int(found.devices[index])
    node = asked.hardware.node_devices if asked.hardware.node_devices < 16 else 8
    own = found.training.space.layout(t, node)
    per_node = max(size for size in range(1, min(devices, node) + 1) if devices % size == 0)
    body = own.model_dump() | {"nodes": devices // per_node, "devices_per_node": per_node}
    if found.engines is not None:
        body["generation"] = "vllm"
        if found.split[index]:
            rest = devices - int(found.training.devices[t])
            body |= {"placement": "split", "generation_ranks": rest, "staleness": int(found.staleness[index])}
        else:
            body["engine_sleep"] = True
    return Layout.model_validate(body)


def label_of(found: Found, index: int) -> str:
    """``split 8+8 async1, tp2 dp4, vllm 8 x tp1``: numbers of devices that train and that generate."""
    training, engines = found.training, found.engines
    t, g = int(found.t[index]), int(found.g[index])
    own = training.space.layout(t, 8).label()
    if engines is None:
        return own
    tensor, rest = int(engines.tensor[g]), int(engines.devices[g])
    engine = f"vllm {rest // tensor} x tp{tensor}"
    if not found.split[index]:
        return f"colocated, {own}, {engine}"
    age = f" async{int(found.staleness[index])}" if found.staleness[index] else ""
    return f"split {int(training.devices[t])}+{rest}{age}, {own}, {engine}"


def ranked(found: Found, objective: str) -> Column:
    """Arrangements that fit, from the best on; of equals the one with less memory, then fewer stale samples."""
    measure = found.seconds * (found.devices if objective == "cost" else 1)
    order = np.lexsort((found.staleness, found.memory, measure))
    return order[found.fits[order]]


def fastest_by_count(found: Found) -> list[int]:
    """Of every number of devices the fastest arrangement that fits, fewest devices first."""
    order = ranked(found, "throughput")
    _, first = np.unique(found.devices[order], return_index=True)
    return [int(index) for index in order[first]]


def front(options: Sequence[Arrangement]) -> list[Arrangement]:
    """Those that no other beats in rate, devices and cost (where all have prices) at once: fewest devices first."""
    priced = all(option.cost_per_1000_samples is not None for option in options)

    def key(option: Arrangement) -> tuple[float, ...]:
        cost = [option.cost_per_1000_samples or 0.0] if priced else []
        return (-option.samples_per_second, float(option.devices), *cost)

    keys = [key(option) for option in options]
    kept = [
        option
        for option, mine in zip(options, keys, strict=True)
        if not any(other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in keys)
    ]
    return sorted(kept, key=lambda option: (option.devices, -option.samples_per_second))


def gib(count: int) -> str:
    """Bytes in GiB, one digit."""
    return f"{count / GIB:.1f}"
