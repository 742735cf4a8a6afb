"""One rank of a loop that is timed from outside: the engine's iterations with and without the suite's clock.

    python -m benchmarks.loop_worker overhead|control MANIFEST.json SCRATCH_FOLDER NUMBER...

``overhead TURNS`` alternates three kinds of iterations: with everything (``on``), with the same barriers at phase edges
but no clock, probe or event (``edges``), and bare (``bare``). Each is timed from outside, barrier to barrier, with what
the recorder does after the iteration. For ``on`` it also adds up the time in the recorder's own code (``direct``).
``control ITERATIONS STRETCHES`` times stretches of recorded iterations as a whole. Rank 0 prints the seconds as JSON.
Runs in the stack's interpreter.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.rank_end import end_with
from suite.worker import recorder as recorder_module
from suite.worker.events import EventLog, Progress
from suite.worker.loop import Loop
from suite.worker.memory import MemoryProbe
from suite.worker.nvml import DeviceSampler, open_gpu
from suite.worker.process import resident_bytes
from suite.worker.rank import read_rank
from suite.worker.recorder import NullRecorder, Recorder
from suite.worker.registry import backend_class
from suite.worker.world import World, barrier, join, synchronise


def meet(world: World) -> None:
    synchronise(world)
    barrier(world)


class EdgeRecorder(NullRecorder):
    """Barriers and device synchronisation where the clock has them, and nothing else."""

    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self, iteration: int) -> None:
        meet(self._world)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        yield
        meet(self._world)

    def stop(self) -> None:
        meet(self._world)


class Meter(NullRecorder):
    """A recorder around whose own code the time is taken, less what it waits for the device and for other ranks."""

    def __init__(self, recorder: NullRecorder) -> None:
        self._recorder, self._waited, self.seconds = recorder, 0.0, 0.0
        recorder_module.synchronise = self._timed_wait(synchronise)
        recorder_module.barrier = self._timed_wait(barrier)

    def watch(self, *models: torch.nn.Module) -> None:
        self._recorder.watch(*models)

    def begin(self, iteration: int) -> None:
        with self._spent():
            self._recorder.begin(iteration)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        inner = self._recorder.phase(name)
        with self._spent():
            inner.__enter__()
        yield
        with self._spent():
            inner.__exit__(None, None, None)

    def stop(self) -> None:
        with self._spent():
            self._recorder.stop()

    def finish(self, *arguments: Any, **optional: Any) -> None:
        with self._spent():
            self._recorder.finish(*arguments, **optional)

    def take(self) -> float:
        """Seconds since the last call."""
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    @contextmanager
    def _spent(self) -> Iterator[None]:
        began, self._waited = time.perf_counter(), 0.0
        yield
        self.seconds += time.perf_counter() - began - self._waited

    def _timed_wait(self, wait: Callable[[World], None]) -> Callable[[World], None]:
        def timed(world: World) -> None:
            began = time.perf_counter()
            wait(world)
            self._waited += time.perf_counter() - began

        return timed


class WatchedTurns:
    """Takes the hooks of a recorder that watches models out of them, and puts them in again."""

    def __init__(self, recorder: NullRecorder, models: tuple[torch.nn.Module, ...]) -> None:
        self._models = models
        before = [dict(model._forward_hooks) for model in models]
        recorder.watch(*models)
        self._hooks = {False: before, True: [dict(model._forward_hooks) for model in models]}

    def set(self, is_watched: bool) -> None:
        for model, hooks in zip(self._models, self._hooks[is_watched], strict=True):
            model._forward_hooks.clear()
            model._forward_hooks.update(hooks)


class Bench:
    """An engine with its loop, and the recorders."""

    def __init__(self, manifest: dict, folder: Path) -> None:
        torch.set_num_threads(manifest["measure"]["threads_per_rank"])
        build = backend_class(manifest["backend"]["name"], manifest["measure"]["device"])
        identity = read_rank(os.environ)
        self.world: World = join(identity, manifest["measure"]["device"], 600)
        baseline = resident_bytes()
        engine = build(manifest, self.world)
        self.loop = Loop(engine, manifest)
        self.iteration = 0
        sampler = DeviceSampler(open_gpu(self.world.device)) if self.world.device.type == "cuda" else None
        if sampler is not None:
            sampler.start()
        self.log = EventLog(str(folder), self.world.rank, self.world.rank == 0)
        progress, memory = Progress(log=self.log), MemoryProbe(self.world.device, baseline)
        self.probed = Meter(Recorder(self.world, self.log, memory, sampler, progress))
        self._hooks = WatchedTurns(self.probed, engine.models)
        self.edges = EdgeRecorder(self.world)
        self.bare = NullRecorder()

    def seconds(self, recorder: NullRecorder, iterations: int = 1) -> float:
        """Elapsed time of some iterations, all ranks together."""
        self._hooks.set(recorder is self.probed)
        meet(self.world)
        start = time.perf_counter()
        for _ in range(iterations):
            self.loop.run_iteration(self.iteration, recorder)
            self.iteration += 1
        meet(self.world)
        return time.perf_counter() - start

    def recorded_seconds(self) -> list[float]:
        """Of every iteration that was recorded, by its own event."""
        events = map(json.loads, Path(self.log.path).read_text(encoding="utf-8").splitlines())
        return [event["seconds"] for event in events if event["kind"] == "iteration"]


def take_turns(bench: Bench, turns: int) -> dict:
    """Seconds of each kind of iteration, turn by turn, and those in the recorder's own code."""
    recorders = {"on": bench.probed, "edges": bench.edges, "bare": bench.bare}
    if bench.world.world_size == 1:
        del recorders["bare"]  # a rank alone meets nobody at the edges
    seconds: dict[str, list[float]] = {name: [] for name in recorders}
    direct = []
    for index in range(turns):
        for name in list(recorders)[:: 1 if index % 2 == 0 else -1]:
            seconds[name].append(bench.seconds(recorders[name]))
        direct.append(bench.probed.take())
    return {"seconds": seconds, "direct": direct}


def take_stretches(bench: Bench, iterations: int, stretches: int) -> dict:
    """Seconds of each stretch of recorded iterations from outside, and of the iterations in it by their events."""
    outside = [bench.seconds(bench.probed, iterations) for _ in range(stretches)]
    inside = bench.recorded_seconds()
    return {
        "outside": outside,
        "inside": [inside[first : first + iterations] for first in range(0, len(inside), iterations)],
    }


def main() -> EventLog:
    what, manifest_path, folder, *numbers = sys.argv[1:]
    manifest = json.loads(Path(manifest_path).read_text(encoding="utf-8"))
    bench = Bench(manifest, Path(folder))
    bench.seconds(bench.bare, manifest["measure"]["warmup"])
    result = {"overhead": take_turns, "control": take_stretches}[what](bench, *map(int, numbers))
    if bench.world.rank == 0:
        print(f"RESULT {json.dumps(result)}", flush=True)
    return bench.log


if __name__ == "__main__":
    end_with(main)
