"""One rank of a loop that is timed from outside: the engine's iterations without the suite's clock, or half with it.

    python -m benchmarks.loop_worker overhead|control MANIFEST.json SCRATCH_FOLDER ITERATIONS

``overhead`` alternates three kinds of iterations: with everything (``on``), with the same barriers at phase edges but
no clock, probe or event (``edges``), and bare (``bare``). Each is timed from outside, barrier to barrier, with what the
recorder does after the iteration. ``control`` runs bare ones in one stretch. Rank 0 prints the seconds as JSON. Runs in
the stack's interpreter.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from suite.worker.engines import engine_class
from suite.worker.events import EventLog
from suite.worker.loop import PPOLoop
from suite.worker.memory import MemoryProbe
from suite.worker.nvml import DeviceSampler, open_gpu
from suite.worker.progress import Progress
from suite.worker.rank import read_rank
from suite.worker.recorder import NullRecorder, Recorder
from suite.worker.resident import resident_bytes
from suite.worker.world import World, barrier, join, leave, synchronise


class EdgeRecorder(NullRecorder):
    """Barriers and device synchronisation where the clock has them, and nothing else."""

    def __init__(self, world: World) -> None:
        self._world = world

    def begin(self, iteration: int) -> None:
        self._meet()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        yield
        self._meet()

    def stop(self) -> None:
        self._meet()

    def _meet(self) -> None:
        synchronise(self._world)
        barrier(self._world)


class Bench:
    """An engine with its loop, and both recorders."""

    def __init__(self, manifest: dict, folder: Path) -> None:
        torch.set_num_threads(manifest["measure"]["threads_per_rank"])
        build = engine_class(manifest["backend"]["name"], manifest["measure"]["device"])
        identity = read_rank(os.environ)
        self.world: World = join(identity, manifest["measure"]["device"], 600)
        baseline = resident_bytes()
        self.loop = PPOLoop(build(manifest, self.world), manifest)
        self.iteration = 0
        sampler = DeviceSampler(open_gpu(self.world.device)) if self.world.device.type == "cuda" else None
        if sampler is not None:
            sampler.start()
        log = EventLog(str(folder), self.world.rank, self.world.rank == 0)
        self.probed = Recorder(self.world, log, MemoryProbe(self.world.device, baseline), sampler, Progress())
        self.edges = EdgeRecorder(self.world)
        self.bare = NullRecorder()

    def seconds(self, recorder: NullRecorder, iterations: int = 1) -> float:
        """Elapsed time of some iterations, all ranks together."""
        self._together()
        start = time.perf_counter()
        for _ in range(iterations):
            self.loop.run_iteration(self.iteration, recorder)
            self.iteration += 1
        self._together()
        return time.perf_counter() - start

    def _together(self) -> None:
        synchronise(self.world)
        barrier(self.world)


def main() -> None:
    what, manifest_path, folder, iterations = sys.argv[1:]
    manifest = json.loads(Path(manifest_path).read_text(encoding="utf-8"))
    bench = Bench(manifest, Path(folder))
    bench.seconds(bench.bare, manifest["measure"]["warmup"])
    if what == "control":
        result = {"seconds": bench.seconds(bench.bare, int(iterations))}
    else:
        recorders = {"on": bench.probed, "edges": bench.edges, "bare": bench.bare}
        if bench.world.world_size == 1:
            del recorders["bare"]  # a rank alone meets nobody at the edges
        result = {name: [] for name in recorders}
        for index in range(int(iterations)):
            for name in list(recorders)[:: 1 if index % 2 == 0 else -1]:
                result[name].append(bench.seconds(recorders[name]))
    if bench.world.rank == 0:
        print(f"RESULT {json.dumps(result)}", flush=True)
    leave()


if __name__ == "__main__":
    main()
