"""A stopwatch beside the record, and the driver's own share of a run."""

import resource
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.ranks import one_manifest, run_ranks
from benchmarks.verdict import Interval, Row, at_most, trimmed_mean, within
from suite.conduct.running.execute import execute
from suite.launch.local import LocalLauncher
from suite.spec.manifest import Manifest

ITERATIONS, STRETCHES = 5, 8
CASES = (("deepspeed", "8M"), ("megatron", "8M"))
LIMIT, DRIVER_LIMIT = 0.01, 0.01


def stopwatch(manifest: Manifest) -> Interval:
    """Rate by the record's iteration seconds over rate by a stopwatch around the same iterations.

    Each stretch of iterations is timed from outside, barrier to barrier, with all that is between them.
    """
    told = run_ranks("control", manifest, ITERATIONS, STRETCHES)
    return trimmed_mean(
        [outside / sum(inside) for outside, inside in zip(told["outside"], told["inside"], strict=True)]
    )


def driver_share(manifest: Manifest) -> float:
    """The driver's own processor time over the elapsed time of a run."""
    with tempfile.TemporaryDirectory() as folder:
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        record = execute(manifest, Path(folder), LocalLauncher(), sys.executable, lambda event: None)
        after, elapsed = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - start
    if record.status != "ok":
        raise RuntimeError(f"the run of {manifest.backend.name} failed: {record.failure}")
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / elapsed


def rows() -> list[Row]:
    table, shares = [], []
    for backend, size in CASES:
        manifest = one_manifest(backend, size, 1, ITERATIONS * STRETCHES)
        ratio = stopwatch(manifest)
        what = f"rate in the record over rate by a stopwatch, {backend} {size}"
        limit = f"within {LIMIT:.0%}"
        table.append(Row(what, ratio.text(".4f"), limit, within(ratio, 1 - LIMIT, 1 + LIMIT)))
        shares.append(driver_share(manifest))
    share = Interval(max(shares), min(shares), max(shares))
    figure = f"{share.value:.2%} at most of {len(shares)} runs"
    table.append(
        Row(
            "driver's processor time over a run's elapsed time",
            figure,
            f"{DRIVER_LIMIT:.0%}",
            at_most(share, DRIVER_LIMIT),
        )
    )
    return table
