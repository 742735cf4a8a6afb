"""What clock, probes and events cost, and what the barriers do that the clock needs: the same iterations in turns."""

from __future__ import annotations

import math
import statistics

from benchmarks.ranks import one_manifest, run_ranks
from suite.stats.intervals import student_quantile

LIMIT = 0.01
TURNS = 60
CASES = (("deepspeed", "8M", 1), ("megatron", "8M", 1), ("deepspeed", "8M", 2), ("megatron", "8M", 2))


def overhead(longer: list[float], shorter: list[float]) -> tuple[float, float, float]:
    """Share that ``longer`` takes more, with its 95 % interval: Student's t on the turns' log ratios, outliers cut.

    A fifth of the turns is trimmed at each end (Yuen's trimmed mean), because one preempted iteration on a shared
    machine outweighs the effect that is looked for.
    """
    ratios = sorted(math.log(above / below) for above, below in zip(longer, shorter, strict=True))
    cut = len(ratios) // 5
    kept = ratios[cut : len(ratios) - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    error = statistics.stdev(winsorised) / ((1 - 2 * cut / len(ratios)) * math.sqrt(len(ratios)))
    half = student_quantile(len(kept) - 1) * error
    centre = statistics.fmean(kept)
    return math.expm1(centre), math.expm1(centre - half), math.expm1(centre + half)


def rows() -> list[tuple[str, str, str]]:
    """Figures for the table: what, figure, limit."""
    table = []
    for backend, size, ranks in CASES:
        seconds = run_ranks("overhead", one_manifest(backend, size, ranks, 1), TURNS)
        where = f"{backend} {size}, {ranks} rank{'s' if ranks > 1 else ''}"
        table.append((f"clock, probes and events, {where}", _figure(seconds, "on", "edges"), f"{LIMIT:.0%}"))
        if ranks > 1:
            table.append((f"barriers at phase edges, {where}", _figure(seconds, "edges", "bare"), "none"))
    return table


def _figure(seconds: dict[str, list[float]], longer: str, shorter: str) -> str:
    value, low, high = overhead(seconds[longer], seconds[shorter])
    return f"{value:+.2%} [{low:+.2%}, {high:+.2%}] of {statistics.median(seconds[shorter]):.3f} s"
