"""One rank of a loop that iterates when it is told to, so that several processes can take turns.

    python -m benchmarks.turn_worker MANIFEST.json FOLDER

Reads a line from the pipe FOLDER/turns-RANK, runs one recorded iteration with the other ranks, and so on until the
pipe is closed. Rank 0 prints ``READY``, and the seconds of each iteration as ``TURN SECONDS``. Runs in the stack's
interpreter.
"""

import gc
import json
import sys
from pathlib import Path

from benchmarks.loop_worker import Bench
from benchmarks.rank_end import end_with
from suite.worker.events import EventLog
from suite.worker.process import how_started


def main() -> EventLog:
    manifest_path, folder = sys.argv[1:]
    manifest = json.loads(Path(manifest_path).read_text(encoding="utf-8"))
    bench = Bench(manifest, Path(folder))
    gc.collect()  # as the worker does between set-up and iteration 0
    bench.seconds(bench.probed, manifest["measure"]["warmup"])
    tell = bench.world.rank == 0
    if tell:
        print(f"READY {how_started()}", flush=True)
    with (Path(folder) / f"turns-{bench.world.rank}").open() as turns:
        for _ in turns:
            seconds = bench.seconds(bench.probed)
            if tell:
                print(f"TURN {seconds!r}", flush=True)
    return bench.log


if __name__ == "__main__":
    end_with(main)
