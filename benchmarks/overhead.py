"""What the clock, the probes and the events cost: the same iterations with all of them on and off, in pairs."""

from __future__ import annotations

import math
import statistics

from benchmarks.ranks import one_manifest, run_ranks
from suite.stats.intervals import student_quantile

LIMIT = 0.01
PAIRS = 60
CASES = (("deepspeed", "3M", 1), ("megatron", "3M", 1), ("deepspeed", "3M", 2), ("megatron", "3M", 2))


def overhead(on: list[float], off: list[float]) -> tuple[float, float, float]:
    """Share that ``on`` takes longer, with its 95 % interval: Student's t on the pairs' log ratios, outliers cut.

    A fifth of the pairs is trimmed at each end (Yuen's trimmed mean), because one preempted iteration on a shared
    machine outweighs the effect that is looked for.
    """
    ratios = sorted(math.log(with_probes / without) for with_probes, without in zip(on, off, strict=True))
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
        result = run_ranks("overhead", one_manifest(backend, size, ranks, 1), PAIRS)
        value, low, high = overhead(result["on"], result["off"])
        middle = statistics.median(result["off"])
        table.append(
            (
                f"probes and events, {backend} {size}, {ranks} rank{'s' if ranks > 1 else ''}, {PAIRS} pairs",
                f"{value:+.2%} [{low:+.2%}, {high:+.2%}] of {middle:.3f} s",
                f"{LIMIT:.0%}",
            )
        )
    return table
