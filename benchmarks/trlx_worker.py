"""One rank of trlx's trainer whose iterations take turns: with the suite's clock, with its barriers alone, and bare.

    python -m benchmarks.trlx_worker MANIFEST.json SCRATCH_FOLDER

The manifest's iterations are timed from outside, barrier to barrier, with the writing of their events; its warm-up is
not. Rank 0 prints the seconds as JSON. Runs in the stack's interpreter, which must hold trlx (docs/backends.md).
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from suite.worker.events import EventLog
from suite.worker.memory import MemoryProbe
from suite.worker.place import read_place
from suite.worker.progress import Progress
from suite.worker.resident import resident_bytes
from suite.worker.session import own_build
from suite.worker.trainers.clock import NullClock, PhaseClock
from suite.worker.world import World, barrier, join, leave, synchronise


def meet(world: World) -> None:
    synchronise(world)
    barrier(world)


class EdgeClock(NullClock):
    """Barriers and device synchronisation where the clock has them, and nothing else."""

    def __init__(self, world: World) -> None:
        self._world, self._alone = world, False

    def begin(self, iteration: int) -> None:
        meet(self._world)

    def open(self, phase: str, alone: bool = False) -> None:
        self._alone = alone
        self.close()

    def close(self, more: bool = False) -> None:
        if not self._alone:
            meet(self._world)

    def stop(self) -> None:
        meet(self._world)


class Turns(NullClock):
    """Hands each iteration to the next of several clocks, and times it from outside."""

    def __init__(self, world: World, clocks: dict[str, NullClock], warmup: int) -> None:
        self._world, self._clocks, self._warmup = world, clocks, warmup
        self._clock, self._name, self._counts, self._began = NullClock(), "", False, 0.0
        self.seconds: dict[str, list[float]] = {name: [] for name in clocks}

    def begin(self, iteration: int) -> None:
        turn, place = divmod(max(0, iteration - self._warmup), len(self._clocks))
        self._name = list(self._clocks)[:: 1 if turn % 2 == 0 else -1][place]
        self._counts = iteration >= self._warmup
        self._clock = self._clocks[self._name]
        meet(self._world)
        self._began = time.perf_counter()
        self._clock.begin(iteration)

    def open(self, phase: str, alone: bool = False) -> None:
        self._clock.open(phase, alone)

    def close(self, more: bool = False) -> None:
        self._clock.close(more)

    def detail(self, name: str):
        return self._clock.detail(name)

    def stop(self) -> None:
        self._clock.stop()

    def finish(self, counts, stats, **optional) -> None:
        self._clock.finish(counts, stats, **optional)
        meet(self._world)
        if self._counts:
            self.seconds[self._name].append(time.perf_counter() - self._began)


def main() -> None:
    manifest_path, folder = sys.argv[1:]
    manifest = json.loads(Path(manifest_path).read_text(encoding="utf-8"))
    measure, place = manifest["measure"], read_place(os.environ)
    build = own_build(manifest)
    world = join(place, measure["device"], 600)
    baseline = resident_bytes()
    trainer = build(manifest, world)
    log = EventLog(folder, world.rank, world.rank == 0)
    probed = PhaseClock(world, log, MemoryProbe(world.device, baseline), None, Progress())
    clocks = {"on": probed, "edges": EdgeClock(world), "bare": NullClock()}
    if world.world_size == 1:
        del clocks["edges"]  # a rank alone meets nobody at the edges
    turns = Turns(world, clocks, measure["warmup"])
    trainer.run(turns, measure["warmup"] + measure["iterations"])
    if world.rank == 0:
        print(f"RESULT {json.dumps(turns.seconds)}", flush=True)
    leave()


if __name__ == "__main__":
    main()
