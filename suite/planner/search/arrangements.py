"""Every way to run an iteration on a number of devices: layouts that train, engines, where they stand, how stale.

The two sides are predicted once each; an arrangement is a pair of them, so that hundreds of thousands are arithmetic on
columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from suite.planner.ask import Question
from suite.planner.jobs import Column
from suite.planner.memory import OUTSIDE_ALLOCATOR
from suite.planner.rl_iteration import Generation, RLWork, iteration_seconds
from suite.planner.rl_parameters import RLParameters, load_rl_parameters
from suite.planner.rl_sync import sync_seconds
from suite.planner.search.sides import (
    OWN_SHARE,
    Engines,
    Training,
    engine_side,
    generated,
    longest_fits,
    shared,
    training_side,
)
from suite.planner.space import candidates
from suite.planner.table import predict
from suite.spec.workload import Workload

Placing = Literal["auto", "colocated", "split"]
#: Publications of weights that samples may be behind; what is further behind is predicted to be no faster.
STALENESS = (0, 1)
#: Numbers of devices that train, of all, are multiples of this share of them, where more would be too many to look at.
_SPLITS = 32
_COLUMNS: tuple[str, ...] = ("t", "g", "split", "staleness", "share", "devices", "seconds", "generation", "sync")
_COLUMNS += ("memory", "engine_memory", "fits")


class Pairs(NamedTuple):
    """Arrangements of one kind as columns of indices: of training layouts, and of engines."""

    t: Column
    g: Column


@dataclass(frozen=True)
class Found:
    """Arrangements as columns: indices ``t`` of ``training`` and ``g`` of ``engines``, -1 for the stack's own loop.

    ``seconds`` of an iteration; ``generation`` and ``sync`` of these phases; ``share`` of its device that an engine
    takes; ``memory`` bytes of the fullest device that trains, ``engine_memory`` of the fullest that generates.
    """

    training: Training
    engines: Engines | None
    rl: RLParameters
    samples: int
    t: Column
    g: Column
    split: Column
    staleness: Column
    share: Column
    devices: Column
    seconds: Column
    generation: Column
    sync: Column
    memory: Column
    engine_memory: Column
    fits: Column

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def rate(self) -> Column:
        return self.samples / self.seconds

    def work(self, index: int) -> RLWork | None:
        """One arrangement as ``suite.planner.rl_iteration`` takes it; ``None`` for the stack's own loop."""
        if self.engines is None:
            return None
        t, g = self.t[[index]], self.g[[index]]
        return replace(
            self.training.work,
            jobs=self.training.work.jobs.take(t),
            generation=self.engines.side(g, self.share[[index]]),
            colocated=1.0 - self.split[[index]],
            staleness=self.staleness[[index]],
        )


def arrangements(
    asked: Question, workload: Workload, devices: Sequence[int], placing: Placing = "auto", staleness: int = 1
) -> Found:
    """All arrangements of the backend and vLLM on each number of devices, for samples that are fixed in all.

    ``staleness``: publications that samples may be behind at most; 0 is synchronous.
    """
    rl = load_rl_parameters()
    work = workload.model_copy(update={"scaling": "strong"})
    shares = [pair for count in devices for pair in _splits(count, asked)] if placing != "colocated" else []
    together = list(devices) if placing != "split" else []
    train_on = sorted({*together, *(train for train, _ in shares)})
    training = training_side(
        asked.shape, work, asked.hardware, asked.profile, train_on, asked.parameters, rl, asked.manner
    )
    engines = engine_side(
        asked.shape, work, asked.hardware, sorted({*together, *(rest for _, rest in shares)}), training
    )
    made = [
        *_colocated(asked, rl, training, engines, together),
        *(each for age in STALENESS[: staleness + 1] for each in _split(asked, rl, training, engines, shares, age)),
    ]
    columns = {name: np.concatenate([np.zeros(0), *(part[name] for part in made)]) for name in _COLUMNS}
    columns |= {name: columns[name].astype(int) for name in ("t", "g")}
    columns["fits"] = columns["fits"].astype(bool)
    return Found(training=training, engines=engines, rl=rl, samples=work.rollouts, **columns)


def _splits(devices: int, asked: Question) -> list[tuple[int, int]]:
    """Devices that train and devices that generate, of all of them: whole nodes where there are many."""
    node = asked.hardware.node_devices
    unit = 1 if devices <= 2 * node else max(node, devices // _SPLITS)
    return [(train, devices - train) for train in range(unit, devices, unit)]


def _pairs(training: Training, engines: Engines, shares: Sequence[tuple[int, int]]) -> Pairs:
    """Every training layout on the first with every engine on the second number of each share."""
    of_training = {count: np.flatnonzero(training.devices == count) for count in {first for first, _ in shares}}
    of_engines = {count: np.flatnonzero(engines.devices == count) for count in {second for _, second in shares}}
    first, second = [np.zeros(0, int)], [np.zeros(0, int)]
    for train, rest in shares:
        left, right = of_training[train], of_engines[rest]
        first.append(np.repeat(left, len(right)))
        second.append(np.tile(right, len(left)))
    return Pairs(np.concatenate(first), np.concatenate(second))


def _colocated(
    asked: Question, rl: RLParameters, training: Training, engines: Engines, counts: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """One after the other on the same devices; the engine sleeps while the policy trains."""
    t, g = _pairs(training, engines, [(count, count) for count in counts])
    if not len(t):
        return
    capacity = asked.hardware.memory_bytes
    share = shared(training, engines, t, g, capacity)
    parts = generated(engines, g, share, asked.parameters, rl)
    beside = training.standing[t] + share * capacity
    memory = np.maximum(training.memory[t], beside)
    fits = (memory <= capacity) & longest_fits(engines, g, share)
    yield _arranged(training, engines, rl, Pairs(t, g), parts, (0, 0), share, memory, beside, fits)


def _split(
    asked: Question,
    rl: RLParameters,
    training: Training,
    engines: Engines,
    shares: Sequence[tuple[int, int]],
    staleness: int,
) -> Iterator[dict[str, Any]]:
    """Each side on devices of its own: one after the other, or at once, where the slower side sets the pace."""
    t, g = _pairs(training, engines, shares)
    if not len(t):
        return
    every, capacity = np.arange(len(engines)), asked.hardware.memory_bytes
    alone = generated(engines, every, OWN_SHARE, asked.parameters, rl)
    parts = {name: alone[name][g] for name in ("bulk", "tail")}
    fits = (training.memory[t] <= capacity) & longest_fits(engines, every, OWN_SHARE)[g]
    share = np.full(len(t), OWN_SHARE)
    used = OWN_SHARE * capacity + np.full(len(t), float(OUTSIDE_ALLOCATOR))
    yield _arranged(training, engines, rl, Pairs(t, g), parts, (1, staleness), share, training.memory[t], used, fits)


def _arranged(
    training: Training,
    engines: Engines,
    rl: RLParameters,
    pairs: Pairs,
    parts: dict[str, Column],
    placed: tuple[int, int],
    share: Column,
    memory: Column,
    engine_memory: Column,
    fits: Column,
) -> dict[str, Column]:
    """Columns of arrangements of one kind; ``placed`` is split or not, and the staleness."""
    (t, g), (split, staleness) = pairs, placed
    like = np.zeros(len(t))
    work = replace(
        training.work,
        jobs=training.work.jobs.take([0]),
        generation=engines.side(g, share),
        colocated=1.0 - split,
        staleness=staleness + like,
    )
    factor = {name: float(np.exp(effect)) for name, effect in (work.effects or {}).items()}
    scoring = training.scoring[t] * factor["scoring"]
    trained = training.trained[t] * factor["training"]
    phases = {
        "generation": (parts["bulk"] + parts["tail"]) * factor["generation"],
        "sync": sync_seconds(work, rl.values) * factor["sync"] + like,
        "scoring": work.scores * scoring,
        "critic": work.critic * (scoring + trained),
        "training": trained,
        "host": like + rl.values["iteration_fixed"] + rl.values["sample_host"] * work.samples,
    }
    return {
        "t": t,
        "g": g,
        "split": split + like,
        "staleness": staleness + like,
        "share": share,
        "devices": training.devices[t] + split * engines.devices[g],
        "seconds": iteration_seconds(work, phases, parts),
        "generation": phases["generation"],
        "sync": phases["sync"],
        "memory": memory,
        "engine_memory": engine_memory,
        "fits": fits,
    }


def own_loop(asked: Question, workload: Workload, devices: Sequence[int]) -> Found:
    """The same of the training stack's own generation, which is on the same devices and waits for nobody."""
    rl = load_rl_parameters()
    work = workload.model_copy(update={"scaling": "strong"})
    space = candidates(
        asked.shape, work, asked.hardware, asked.profile, devices, replace(asked.manner, generation="hf")
    )
    table = predict(space, asked.hardware, asked.profile, asked.parameters)
    count = len(table.iteration)
    zero, none = np.zeros(count), RLWork(space.work.jobs, Generation(1, 1, 1, 1, 1, 1), 1, 0)
    score = np.asarray(sum(table.seconds.get(name, zero) for name in ("score", "reference")))
    training = Training(
        space, none, table.devices, score, table.seconds["train"], table.training, table.total, table.total, table.host
    )
    return Found(
        training=training,
        engines=None,
        rl=rl,
        samples=work.rollouts,
        t=np.arange(count),
        g=np.full(count, -1),
        split=zero,
        staleness=zero,
        share=zero,
        devices=table.devices,
        seconds=table.iteration,
        generation=table.seconds["generate"],
        sync=zero,
        memory=table.total,
        engine_memory=zero,
        fits=table.fits,
    )
