"""What the suite's clock costs trlx's own trainer: `python -m benchmarks.trlx PYTHON`, whose stack holds trlx."""

from __future__ import annotations

import statistics
import sys

from benchmarks.overhead import LIMIT, overhead
from benchmarks.ranks import one_manifest, run_script

TURNS = 60
CASES = (("trlx-deepspeed", 1), ("trlx-deepspeed", 2), ("trlx-ddp", 2))


def main() -> None:
    (python,) = sys.argv[1:]
    for backend, ranks in CASES:
        manifest = one_manifest(backend, "8M", ranks, TURNS * (2 if ranks == 1 else 3), python)
        seconds = run_script("benchmarks.trlx_worker", manifest, python)
        for longer, shorter in (("on", "bare"), ("on", "edges"), ("edges", "bare")):
            if longer in seconds and shorter in seconds:
                value, low, high = overhead(seconds[longer], seconds[shorter])
                middle = statistics.median(seconds[shorter])
                print(
                    f"{backend} 8M, {ranks} ranks, {longer} over {shorter}: {value:+.2%} [{low:+.2%}, {high:+.2%}] "
                    f"of {middle:.3f} s (limit of on over bare: {LIMIT:.0%})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
