"""What is predicted of every candidate of a space, as columns: seconds, bytes, rates and how sure one is of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from suite.planner.hardware import Hardware
from suite.planner.host_memory import host_memory
from suite.planner.iteration import Iterations, phase_seconds, step_parts_of
from suite.planner.iteration_memory import engine_waves, iteration_memory
from suite.planner.jobs import Column
from suite.planner.learnt import before, deviation, four_fifths
from suite.planner.parameters import Parameters, RateBand
from suite.planner.profiles import Profile
from suite.planner.space import Space
from suite.spec.phases import TIMED_NAMES

Objective = Literal["throughput", "cost", "latency"]


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


class Bands(NamedTuple):
    """Factors on each candidate's rate between which its 80 % band lies, and the memory model's 90th percentile."""

    low: Column
    high: Column
    memory: float


def bands_of(
    space: Space,
    table: Table,
    hardware: Hardware,
    profile: Profile,
    parameters: Parameters,
    published: RateBand | None,
) -> Bands:
    """As published rates lay where they are of such work, else by how sure one is of phases and constants."""
    memory = parameters.bands["memory"].p90
    if published is not None or not len(table.iteration):
        ends = (published.low, published.high) if published is not None else (1.0, 1.0)
        low, high = (np.full(len(table.iteration), end) for end in ends)
        return Bands(low, high, memory)

    def seconds(other: Parameters) -> Column:
        _, times = phase_times(space, hardware, profile, other)
        return np.asarray(sum(times[phase] for phase in TIMED_NAMES if phase in times))

    wide = four_fifths(deviation(parameters, parameters.learnt or before(parameters, hardware), seconds))
    return Bands(1 / wide, wide, memory)


def phase_times(
    space: Space, hardware: Hardware, profile: Profile, parameters: Parameters, slower: Column | None = None
) -> tuple[Iterations, dict[str, Column]]:
    """Every candidate's work as it is timed, and its seconds by phase, stacks' effects in."""
    factor = stack_factor(hardware, profile, parameters)
    known_factor = parameters.ppo.slower if parameters.ppo and profile.plain_model else 1.0
    work = replace(space.work, slower=known_factor if slower is None else slower)
    apart = frozenset[str]()
    if work.engine:  # it is no part of the training stack, whose effects are not its own
        work = replace(work, waves=engine_waves(work, parameters.memory, profile))
        apart = frozenset(("sync", "prefill", "decode", "generate"))
    parts = {"prefill": "generate", "decode": "generate", "swap": "reference"}
    return work, {
        name: column * (1.0 if name in apart else factor) * parameters.phases.get(parts.get(name, name), 1.0)
        for name, column in phase_seconds(work, parameters.values).items()
    }


def predict(
    space: Space, hardware: Hardware, profile: Profile, parameters: Parameters, slower: Column | None = None
) -> Table:
    """Seconds and bytes of every candidate, stacks' effects in; ``slower`` in place of the fitted factor."""
    work, seconds = phase_times(space, hardware, profile, parameters, slower)
    factor = stack_factor(hardware, profile, parameters) * parameters.phases.get("train", 1.0)
    training = step_parts_of(work, parameters.values)
    training = {name: column * factor for name, column in training.items()}
    memory = iteration_memory(work, parameters.memory, profile)
    memory = {name: column * parameters.memory_factor for name, column in memory.items()}
    return Table(seconds, training, memory, host_memory(space.work, profile), space)


def stack_factor(hardware: Hardware, profile: Profile, parameters: Parameters) -> float:
    """The factor on time that is the stack's own, beyond physics."""
    device, known = hardware.name.split("-")[0], profile.traits
    groups = {"family": known.family, "framework": known.framework, "framework|device": f"{known.framework}|{device}"}
    return float(np.exp(parameters.effect(groups)))
