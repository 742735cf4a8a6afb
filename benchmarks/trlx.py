"""What the suite's subclass and clock cost trlx's own trainer: `python -m benchmarks.trlx PYTHON [TURNS]`.

PYTHON is an interpreter whose stack holds trlx (docs/backends.md).
"""

from __future__ import annotations

import statistics
import sys

from benchmarks.overhead import LIMIT, overhead
from benchmarks.ranks import one_manifest, run_script

TURNS = 400
CASES = (("trlx-deepspeed", 1), ("trlx-deepspeed", 2), ("trlx-ddp", 2))


def main() -> None:
    python, turns = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else TURNS
    for backend, ranks in CASES:
        manifest = one_manifest(backend, "8M", ranks, turns * (2 if ranks == 1 else 3), python)
        seconds = run_script("benchmarks.trlx_worker", manifest, python)
        for longer, shorter in (("clock", "alone"), ("clock", "edges"), ("edges", "alone")):
            if longer in seconds and shorter in seconds:
                value, low, high = overhead(seconds[longer], seconds[shorter])
                middle = statistics.median(seconds[shorter])
                print(
                    f"{backend} 8M, {ranks} rank(s), {turns} turns, {longer} over {shorter}: {value:+.2%} "
                    f"[{low:+.2%}, {high:+.2%}] of {middle:.3f} s (limit of clock over alone: {LIMIT:.0%})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
