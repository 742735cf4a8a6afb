"""One iteration over all ranks, task by task: who computes, who waits, and for what.

A lane is a pipeline stage of one replica (its tensor parallel ranks go in step) or an engine. Where samples have one
length, nobody is slow and nothing is hidden, the closed forms hold exactly: (m + (p - 1) / v)(f + b) for an optimizer
step, (m + p - 1) s for a scoring pass, and of two sides that work at once the slower one.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import ceil

import numpy as np

from suite.planner.simulate.events import Span, Task, Timeline, account
from suite.planner.simulate.generating import Pace, generate
from suite.planner.simulate.schedules import Pass, before, schedule
from suite.planner.simulate.stragglers import Draws, Stragglers
from suite.planner.work import Column
from suite.spec.base import UsageError

#: Iterations that are simulated where two sides work at once: their period is the last one's.
_OVERLAPPED = 4
MOST_TASKS = 400_000
COMPUTE, TALK, HOST, OPTIMIZER = "computing", "communication", "host work", "optimizer"
GENERATION, TAIL, SYNC = "generation", "waiting for the longest sample", "weight sync"
BUBBLE, REPLICAS = "pipeline bubble", "waiting for replicas"
OTHER_SIDE, REDUCTION = "waiting for the other side", "gradients"
SLOW, UNEVEN = "stragglers", "uneven lengths"


class TooLarge(UsageError):
    """More tasks than are worth simulating."""


@dataclass(frozen=True)
class Setting:
    """What is simulated. Seconds are of one lane.

    ``forward`` and ``backward``: of a mean micro batch through a whole stage, ``score`` of a scoring pass; ``talk`` is
    the share of these that is communication. ``weights`` [replicas, micro batches]: work of each, 1 is the mean one.
    ``in_step``: replicas wait for each other at every micro batch (ZeRO-3). ``slow``: seconds of a step that stragglers
    take where none are drawn. ``lengths``: tokens of the responses of each engine's samples. ``devices`` that train and
    that generate, which weigh what each side waits.
    """

    stages: int
    chunks: int
    steps: int
    forward: float
    backward: float
    score: float
    passes: float
    weights: Column
    talk: float = 0.0
    in_step: bool = False
    reduction: float = 0.0
    optimizer: float = 0.0
    slow: float = 0.0
    host: float = 0.0
    sync: float = 0.0
    lengths: tuple[tuple[float, ...], ...] = ()
    places: int = 1
    pace: Pace = field(default_factory=lambda: Pace(0.0, 0.0))
    split: bool = False
    staleness: int = 0
    devices: tuple[int, int] = (1, 1)

    @property
    def replicas(self) -> int:
        return len(self.weights)

    @property
    def micros(self) -> int:
        """Micro batches of a replica in one optimizer step."""
        return self.weights.shape[1] // self.steps

    @property
    def tasks(self) -> int:
        """About how many tasks an iteration has."""
        each = self.replicas * self.stages * self.weights.shape[1]
        return each * (ceil(self.passes) + 2 * self.chunks) + len(self.lengths)


@dataclass(frozen=True)
class Simulated:
    """``seconds`` of an iteration, and mean device-seconds by cause, which add up to it. ``lanes`` have a name and a
    side: 0 trains, 1 generates."""

    seconds: float
    causes: dict[str, float]
    spans: Sequence[Span]
    lanes: tuple[tuple[str, int], ...]


def simulate(setting: Setting, stragglers: Stragglers | None = None, seed: int = 0) -> Simulated:
    """One iteration, and why it takes as long as it does: the same one is run again with nobody slow, and with equal
    lengths, and what each saves is that cause's. Raises TooLarge."""
    if setting.tasks > MOST_TASKS:
        raise TooLarge(
            f"{setting.tasks:,} tasks are more than the {MOST_TASKS:,} that are simulated: simulate fewer devices, or "
            "larger micro batches (--micro-batch)"
        )
    whole = once(setting, Draws(stragglers, seed))
    fair = once(setting, Draws(None, seed)) if stragglers is not None else whole
    even = once(_even(setting), Draws(None, seed)) if _is_uneven(setting) else fair
    causes = dict(even.causes)
    for name, more in ((UNEVEN, fair.seconds - even.seconds), (SLOW, whole.seconds - fair.seconds)):
        if abs(more) > 1e-12 * whole.seconds:
            causes[name] = causes.get(name, 0.0) + more
    return replace(whole, causes=causes)


def _is_uneven(setting: Setting) -> bool:
    """Whether any micro batch or any engine has more to do than another."""
    lengths = {length for engine in setting.lengths for length in engine}
    return bool(np.ptp(setting.weights) > 0) or len(lengths) > 1


def _even(setting: Setting) -> Setting:
    """The same tokens in all, every micro batch and every sample with as many."""
    every = [length for engine in setting.lengths for length in engine]
    mean = float(np.mean(every)) if every else 0.0
    lengths = tuple((mean,) * len(engine) for engine in setting.lengths)
    return replace(setting, weights=np.full_like(setting.weights, setting.weights.mean()), lengths=lengths)


def once(setting: Setting, draws: Draws) -> Simulated:
    """One run of the simulation."""
    maker = _Maker(setting, draws)
    spans = maker.made()
    *_, began, ended = 0.0, *(spans[number].ended for number in maker.published)
    causes = _causes(maker, spans, began, ended - began)
    computing = causes.pop(COMPUTE, 0.0)
    own = {COMPUTE: (1 - setting.talk) * computing, TALK: setting.talk * computing}
    causes = {name: spent for name, spent in (own | causes).items() if spent > 0}
    return Simulated(ended - began, causes, spans, tuple(maker.lanes))


def _causes(maker: "_Maker", spans: Sequence[Span], began: float, length: float) -> dict[str, float]:
    """Mean seconds of a device in the last iteration, which takes ``length``, by cause."""
    setting = maker.setting
    shifted = [Span(task, max(0.0, first - began), max(0.0, last - began)) for task, first, last in spans]
    trains, engines = maker.training_lanes, maker.engine_lanes
    known = account(shifted, trains, length) if trains else {}
    if not engines:
        return known
    made = account(shifted, engines, length)
    if setting.split:
        first, second = (count / sum(setting.devices) for count in setting.devices)
        return {name: first * known.get(name, 0) + second * made.get(name, 0) for name in known | made}
    # The same devices: what a lane of the training side waits for while engines generate is what these do.
    away = known.pop(GENERATION, 0.0)
    doing = {name: seconds for name, seconds in made.items() if name in (GENERATION, TAIL)}
    doing[TAIL] = max(0.0, away - doing.get(GENERATION, 0.0))
    for name, seconds in doing.items():
        known[name] = known.get(name, 0.0) + seconds
    return {name: seconds for name, seconds in known.items() if seconds > 0}


class _Maker:
    """Makes one or more iterations."""

    def __init__(self, setting: Setting, draws: Draws) -> None:
        self.setting, self.draws, self.timeline = setting, draws, Timeline()
        self.training_lanes = list(range(setting.replicas * setting.stages))
        self.engine_lanes = [len(self.training_lanes) + engine for engine in range(len(setting.lengths))]
        stages = [f" stage {stage}" for stage in range(setting.stages)] if setting.stages > 1 else [""]
        self.lanes = [(f"replica {replica}{stage}", 0) for replica in range(setting.replicas) for stage in stages]
        self.lanes += [(f"engine {number}", 1) for number in range(len(setting.lengths))]
        self.published: list[int] = []

    def made(self) -> Sequence[Span]:
        setting = self.setting
        overlapped = setting.split and setting.staleness > 0 and self.engine_lanes
        made = self._generate()
        for _ in range(_OVERLAPPED if overlapped else 1):
            after = self._generate() if overlapped else []
            self.learn(made)
            everyone = (*self.training_lanes, *self.engine_lanes)
            waits = OTHER_SIDE if setting.split else REPLICAS
            publish = Task(everyone, setting.sync, tuple(after), "weight sync", SYNC, waits)
            self.published.append(self.timeline.add(publish))
            made = after
        return self.timeline.spans

    def _generate(self) -> list[int]:
        """Adds the generation of the next batch; its tasks."""
        setting = self.setting
        tasks = []
        for lane, lengths in zip(self.engine_lanes, setting.lengths, strict=True):
            slow = self.draws.factor("generate")
            whole, full = generate(lengths, setting.places, setting.pace, slow)
            if setting.split and setting.staleness > 0:  # samples of the next batch take the places that come free
                whole = full = _refilled(lengths, setting.places, setting.pace, slow)
            tasks.append(self.timeline.add(Task((lane,), full, (), "generate", GENERATION, OTHER_SIDE)))
            if whole > full:
                tasks.append(self.timeline.add(Task((lane,), whole - full, (), "the last samples", TAIL, OTHER_SIDE)))
        return tasks

    def learn(self, generated: list[int]) -> None:
        """Scoring, rewards and training of one batch, which needs all of its samples."""
        setting, timeline = self.setting, self.timeline
        waits = (OTHER_SIDE if setting.split else GENERATION) if self.engine_lanes else REPLICAS
        timeline.barrier(self.training_lanes, generated, waits)
        self._score()
        timeline.add(Task(tuple(self.training_lanes), setting.host, (), "host", HOST, REPLICAS))
        for step in range(setting.steps):
            self._step(step)

    def _score(self) -> None:
        """All micro batches through the stages, forward alone, as often as models are asked."""
        setting, timeline = self.setting, self.timeline
        slow = [self.draws.factor("score") for _ in self.training_lanes]
        rounds = ceil(setting.passes)
        share = setting.passes / max(1, rounds)
        for _, micro, replica in product(range(rounds), range(setting.weights.shape[1]), range(setting.replicas)):
            last: tuple[int, ...] = ()
            for lane in range(replica * setting.stages, (replica + 1) * setting.stages):
                seconds = share * setting.score * float(setting.weights[replica, micro]) * slow[lane]
                last = (timeline.add(Task((lane,), seconds, last, f"score {micro}", COMPUTE, BUBBLE)),)

    def _step(self, step: int) -> None:
        setting, timeline = self.setting, self.timeline
        slow = [self.draws.factor("train") for _ in self.training_lanes]
        together = setting.in_step and setting.stages == 1
        group = 1 if together else setting.micros
        for first in range(step * setting.micros, (step + 1) * setting.micros, group):
            for replica in range(setting.replicas):
                self._pipeline(replica, first, group, slow)
            if together:
                timeline.barrier(self.training_lanes, (), REPLICAS)
        lanes = tuple(self.training_lanes)
        waits = REPLICAS if setting.stages == 1 else BUBBLE
        timeline.add(Task(lanes, setting.reduction, (), "gradients", REDUCTION, waits))
        timeline.add(Task(lanes, setting.optimizer, (), "optimizer", OPTIMIZER, REPLICAS))
        if setting.slow:
            timeline.add(Task(lanes, setting.slow, (), "stragglers", SLOW, REPLICAS))

    def _pipeline(self, replica: int, first: int, micros: int, slow: Sequence[float]) -> None:
        """Passes of one replica, added once what they need has been: stages take turns until all are in."""
        setting = self.setting
        left = [deque(schedule(stage, setting.stages, setting.chunks, micros)) for stage in range(setting.stages)]
        known: dict[tuple[int, Pass], int] = {}
        while any(left):
            done = len(known)
            for stage, order in enumerate(left):
                while order:
                    wanted = before(order[0], stage, setting.stages, setting.chunks)
                    if wanted is not None and wanted not in known:
                        break
                    one, after = order.popleft(), () if wanted is None else (known[wanted],)
                    lane = replica * setting.stages + stage
                    known[stage, one] = self._pass(lane, one, first + one.micro, after, slow)
            assert len(known) > done, "a schedule never waits in a circle"

    def _pass(self, lane: int, one: Pass, micro: int, after: tuple[int, ...], slow: Sequence[float]) -> int:
        """``micro`` is counted over all steps."""
        setting = self.setting
        name, whole = ("forward", setting.forward) if one.forward else ("backward", setting.backward)
        seconds = whole / setting.chunks * float(setting.weights[lane // setting.stages, micro]) * slow[lane]
        return self.timeline.add(Task((lane,), seconds, after, f"{name} {micro % setting.micros}", COMPUTE, BUBBLE))


def _refilled(lengths: Sequence[float], places: int, pace: Pace, slow: float) -> float:
    """Seconds of a batch of an engine whose places are always taken."""
    together = min(places, len(lengths))
    steps = sum(lengths) / together
    return slow * steps * (pace.step + together * pace.sample)
