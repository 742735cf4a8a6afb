"""A bare loop beside the record: samples over elapsed time in a plain script must agree with what a run reports."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.ranks import one_manifest, run_ranks
from suite.conduct.running.execute import execute
from suite.launch.local import LocalLauncher
from suite.spec.manifest import Manifest, Run
from suite.stats.compare import compare
from suite.stats.intervals import RunSeconds

ITERATIONS = 15
REPEATS = 3
CASES = (("deepspeed", "8M"), ("megatron", "8M"))


def measured(manifest: Manifest, folder: Path, repeat: int) -> tuple[RunSeconds, float]:
    """Counted iterations of one run through the driver, and the driver's own CPU time over the run's."""
    manifest = manifest.model_copy(update={"run": Run(id=f"control-{repeat}", plan="control", repeat=repeat)})
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    record = execute(manifest, folder, LocalLauncher(), sys.executable, lambda event: None)
    after, elapsed = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - start
    if record.status != "ok" or record.counts is None:
        raise RuntimeError(f"the run of {manifest.backend.name} failed")
    own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    seconds = record.iterations.seconds[manifest.measure.warmup :]
    return RunSeconds(record.counts.samples, tuple(seconds)), own / elapsed


def bare(manifest: Manifest) -> RunSeconds:
    """The same iterations in a plain loop: samples over elapsed time."""
    elapsed = run_ranks("control", manifest, ITERATIONS)["seconds"]
    return RunSeconds(manifest.work.global_rollouts * ITERATIONS, (elapsed,))


def rows() -> list[tuple[str, str, str]]:
    """Figures for the table: what, figure, limit. Bare loop and run take turns."""
    table = []
    shares = []
    for backend, size in CASES:
        manifest = one_manifest(backend, size, 1, ITERATIONS)
        through, plain = [], []
        with tempfile.TemporaryDirectory() as name:
            for repeat in range(1, REPEATS + 1):
                run, share = measured(manifest, Path(name), repeat)
                through.append(run)
                shares.append(share)
                plain.append(bare(manifest))
        result = compare(through, plain)
        ratio = result.ratio
        verdict = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}], {result.verdict}"
        table.append(
            (f"record over bare loop, {backend} {size}, {REPEATS} runs each", verdict, "1 within its interval")
        )
    table.append(("driver's CPU time over the run's elapsed time", f"{max(shares):.2%} at most", "blocks, never polls"))
    return table
