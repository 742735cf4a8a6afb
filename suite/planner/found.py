"""Every way to run an iteration on a number of devices, predicted: layouts as a run has them, or layouts that train
paired with engines, where they stand and how stale samples may be."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from suite.planner.iteration import Predicted, predict
from suite.planner.learnt import FOUR_FIFTHS, deviation
from suite.planner.lengths import drawn
from suite.planner.memory import MOST_AT_ONCE
from suite.planner.parameters import Parameters
from suite.planner.space import TENSOR, Space, candidates, effects_of
from suite.planner.work import Column, Generation, Pairs, Training

if TYPE_CHECKING:
    from suite.planner.ask import Question

Objective = Literal["throughput", "cost", "latency"]
Placing = Literal["auto", "colocated", "split"]
#: Numbers of devices that train, of all, are multiples of this share of them, where more would be too many to look at.
_SPLITS = 32


@dataclass(frozen=True)
class Found:
    """Candidates as columns over ``pairs``: ``devices`` in all, ``samples`` of an iteration, and what is predicted."""

    asked: "Question"
    space: Space
    gen: Generation
    pairs: Pairs
    devices: Column
    samples: Column
    told: Predicted

    def __len__(self) -> int:
        return len(self.devices)

    @property
    def split(self) -> Column:
        return np.asarray(self.pairs.colocated == 0)

    @cached_property
    def rate(self) -> Column:
        return self.samples / self.told.seconds

    @cached_property
    def priced(self) -> Column:
        """Devices, those that generate by their price over that of one that trains."""
        trains = self.space.choices["devices"][self.pairs.t]
        return trains + self.asked.other_price * (self.devices - trains)

    def measure(self, objective: Objective) -> Column:
        """What is minimised: seconds per sample, device-seconds per sample, or seconds per iteration."""
        seconds = self.told.seconds
        return {"throughput": 1 / self.rate, "cost": self.priced / self.rate, "latency": seconds}[objective]

    def order(self, objective: Objective) -> Column:
        """All candidates from the best on; of equals the one with less memory, then fewer stale samples."""
        return np.lexsort((self.pairs.staleness, self.told.memory.total, self.measure(objective)))

    def ranked(self, objective: Objective) -> Column:
        """Those of them that fit."""
        order = self.order(objective)
        return order[self.told.fits[order]]

    def fastest_by_count(self) -> list[int]:
        """Of every number of devices the fastest that fits, fewest devices first."""
        order = self.ranked("throughput")
        _, first = np.unique(self.devices[order], return_index=True)
        return [int(index) for index in order[first]]

    def only(self, indices: Sequence[int]) -> tuple[Training, Generation, Pairs]:
        """The work of a few candidates."""
        t, g = self.pairs.t[indices], self.pairs.g[indices]
        return self.space.work.take(t), self.gen.take(g), self.pairs.take(indices)

    def bands(self, indices: Sequence[int]) -> tuple[Column, Column]:
        """Factors on the rates of some candidates between which four of five measured ones lie.

        By the errors of published iterations of this stack, or of others where there are none of it; after own runs by
        what these left open of phases and constants.
        """
        parameters, asked = self.asked.parameters, self.asked
        if parameters.learnt is None:
            known = parameters.band("iteration", asked.profile.stack, asked.hardware.architecture)
            band = known if asked.other is None else parameters.bands["iteration"].new
            return np.full(len(indices), 1 / band.high), np.full(len(indices), 1 / band.low)
        work, gen, pairs = self.only(indices)

        def seconds(other: Parameters) -> Column:
            effects = effects_of(asked.hardware, asked.profile, other)
            return predict(replace(work, effects=effects), replace(gen, effects=effects), pairs, other.values).seconds

        wide = np.exp(FOUR_FIFTHS * deviation(parameters, parameters.learnt, seconds))
        return 1 / wide, wide


def layouts(asked: "Question", counts: Sequence[int]) -> Found:
    """Every layout of the backend on each number of devices, as a run of it generates."""
    return of_space(asked, candidates(asked, counts))


def of_space(asked: "Question", space: Space) -> Found:
    """Layouts that are given, predicted."""
    return _found(asked, space, space.gen, space.pairs, space.choices["devices"])


def _found(asked: "Question", space: Space, gen: Generation, pairs: Pairs, devices: Column) -> Found:
    known = asked.parameters
    told = predict(space.work, gen, pairs, known.values)
    memory = {part: column * known.memory_factor for part, column in told.memory.parts.items()}
    total = told.memory.total * known.memory_factor
    fits = told.memory.fits & (total <= asked.hardware.memory_bytes)
    told = replace(told, memory=replace(told.memory, parts=memory, total=total, fits=fits))
    return Found(asked, space, gen, pairs, devices, space.work.samples[pairs.t], told)


def arrangements(asked: "Question", counts: Sequence[int], placing: Placing = "auto", staleness: int = 1) -> Found:
    """All arrangements of the backend and vLLM on each number of devices, for samples that are fixed in all.

    ``staleness``: publications that samples may be behind at most; 0 is synchronous.
    """
    asked = replace(asked, workload=asked.workload.model_copy(update={"scaling": "strong"}))
    if asked.manner.generation == "hf":
        return layouts(asked, counts)
    shares = [pair for count in counts for pair in _splits(count, asked)] if placing != "colocated" else []
    together = [(count, count) for count in counts] if placing != "split" else []
    train_on = sorted({train for train, _ in (*together, *shares)})
    own = replace(asked.manner, generation="hf", engine_sleep=False)
    space = candidates(replace(asked, manner=own, profile=replace(asked.profile, gathers_once=False)), train_on)
    gen = _engines(asked, space, sorted({rest for _, rest in (*together, *shares)}))
    kinds = [(together, 1.0, 0.0), *((shares, 0.0, float(age)) for age in range(staleness + 1))]
    made = [Pairs(*_pairs(space, gen, each), colocated, age) for each, colocated, age in kinds]
    columns = ("t", "g", "colocated", "staleness")
    pairs = Pairs(*(np.concatenate([getattr(each, name) for each in made]) for name in columns))
    apart = np.where(pairs.colocated > 0, 0, gen.devices[pairs.g])
    return _found(asked, space, gen, pairs, space.choices["devices"][pairs.t] + apart)


def _splits(devices: int, asked: "Question") -> list[tuple[int, int]]:
    """Devices that train and devices that generate, of all of them: whole nodes where there are many."""
    node = asked.hardware.node_devices
    unit = 1 if devices <= 2 * node else max(node, devices // _SPLITS)
    return [(train, devices - train) for train in range(unit, devices, unit)]


def _pairs(space: Space, gen: Generation, shares: Sequence[tuple[int, int]]) -> tuple[Column, Column]:
    """Every training layout on the first with every engine on the second number of each share."""
    trains, generates = space.choices["devices"], gen.devices
    of_training = {count: np.flatnonzero(trains == count) for count in {first for first, _ in shares}}
    of_engines = {count: np.flatnonzero(generates == count) for count in {second for _, second in shares}}
    both = [(of_training[train], of_engines[rest]) for train, rest in shares]
    first = [np.repeat(left, len(right)) for left, right in both]
    second = [np.tile(right, len(left)) for left, right in both]
    return np.concatenate([np.zeros(0, int), *first]), np.concatenate([np.zeros(0, int), *second])


def _engines(asked: "Question", space: Space, counts: Sequence[int]) -> Generation:
    """Every tensor parallel degree of an engine on each number of devices, inside a node."""
    shape, hardware, samples = asked.shape, asked.other or asked.hardware, asked.workload.rollouts
    rows = [
        (float(count), float(tensor))
        for count in counts
        for tensor in TENSOR
        if not (count % tensor or tensor > hardware.node_devices or shape.heads % tensor)
        and (shape.kv_heads % tensor == 0 or tensor % shape.kv_heads == 0)
        and not (shape.ffn % tensor or shape.hidden % tensor)
        and count // tensor <= samples
    ]
    rows = rows if len(space) else []
    devices, tensors = (np.array([row[place] for row in rows]) for place in (0, 1))
    # The model is that of any layout that trains; the rest of its columns an engine does not have.
    jobs = space.work.jobs.take(np.zeros(len(rows), int))
    one, lengths = np.ones(len(rows)), drawn(asked.workload, samples)
    jobs = replace(jobs, **{name: value * one for name, value in hardware.columns().items()})
    jobs = replace(jobs, devices=devices, tensor=tensors, pipeline=one, context=one, expert_parallel=one)
    return Generation(
        jobs=jobs,
        devices=devices,
        tensor=tensors,
        weight_bytes=np.where(jobs.precision > 0, 1.0, 2.0),
        samples=samples,
        group=asked.workload.group,
        places=MOST_AT_ONCE,
        tools=asked.tools,
        effects=effects_of(hardware, asked.profile, asked.parameters),
        prompt=lengths.prompts.mean(),
        response=lengths.responses.mean(),
        longest=lengths.responses.max(),
        spread=np.log(np.maximum(lengths.responses, 1)).std(),
    )
