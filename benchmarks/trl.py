"""What the suite's subclass and clock cost TRL's own trainer: `python -m benchmarks.trl [TURNS]`."""

import sys
from importlib import metadata
from typing import Any

from benchmarks.overhead import LIMIT
from benchmarks.ranks import one_manifest, run_script
from benchmarks.trlx import turn_rows
from benchmarks.verdict import Row

SIZE, TURNS, USUAL_TURNS = "8M", 300, 60
WORK: dict[str, Any] = {"algorithm": "grpo:kl_coefficient=0.05", "group": 4}
CASES = (("ddp", 1), ("ddp", 2), ("deepspeed", 2))


def rows() -> list[Row]:
    """One row that says why, where TRL is not installed."""
    try:
        metadata.version("trl")
    except metadata.PackageNotFoundError:
        return [Row("clock and subclass on TRL", "not installed: make trl", f"{LIMIT:.0%}", "not measured")]
    return [row for engine, ranks in CASES for row in measure(engine, ranks, USUAL_TURNS)]


def measure(engine: str, ranks: int, turns: int) -> list[Row]:
    """Iterations of one trainer in turns: alone, with the suite's barriers, with all of its clock."""
    iterations = turns * (2 if ranks == 1 else 3) + 1  # the last one's end is that of the training, and not counted
    manifest = one_manifest("trl-grpo", SIZE, ranks, iterations, workload=WORK, layout={"engine": (engine,)})
    seconds = run_script("benchmarks.trl_worker", manifest)
    return turn_rows(seconds, f"trl-grpo {engine} {SIZE}", ranks, turns)


def main() -> None:
    turns = int(sys.argv[1]) if len(sys.argv) > 1 else TURNS
    for engine, ranks in CASES:
        for row in measure(engine, ranks, turns):
            print(f"{row.what}: {row.measured} (limit: {row.limit}, {row.verdict})", flush=True)


if __name__ == "__main__":
    main()
