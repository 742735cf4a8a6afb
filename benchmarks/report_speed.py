"""How long a report over 1,000 bundles takes, and how much memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.verdict import Interval, Row, at_most, median
from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.spec.catalogue import sizes
from suite.spec.layout import Layout
from tests.synthetic import make_bundle, synthetic_manifest

BUNDLES = 1000
LIMIT_SECONDS, LIMIT_MEGABYTES = 5.0, 300


def make_runs(root: Path) -> None:
    """Bundles with records: every size on the ladders, two backends, three rank counts, the rest repeats."""
    shapes = list(sizes().values())
    for index in range(BUNDLES):
        backend = ("deepspeed", "megatron")[index % 2]
        ranks = (1, 2, 4)[index // 2 % 3]
        size = shapes[index // 6 % len(shapes)]
        manifest = synthetic_manifest(
            backend=backend,
            size=size,
            layout=Layout(devices_per_node=ranks, data=ranks),
            repeat=index // (6 * len(shapes)) + 1,
        )
        bundle = Bundle(make_bundle(root, manifest, seconds=1.0 + index % 7 / 50))
        bundle.write_record(derive(bundle))


def measure(folder: Path) -> tuple[float, float]:
    """Seconds and peak resident megabytes of `suite report` in a process of its own."""
    command = [sys.executable, "-m", "suite", "report", str(folder / "runs"), "-o", str(folder / "report.md")]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)  # this child's own memory, not the largest of all children so far
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"suite report ended with exit code {process.returncode}")
    return seconds, usage.ru_maxrss / 1000


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_runs(folder / "runs")
        runs = [measure(folder) for _ in range(5)]
    seconds, peaks = median([run[0] for run in runs]), [run[1] for run in runs]
    peak = Interval(max(peaks), min(peaks), max(peaks))
    return [
        Row(
            f"`suite report` over {BUNDLES:,} bundles",
            f"{seconds.text('.2f')} s (median of {len(runs)})",
            f"{LIMIT_SECONDS:.0f} s",
            at_most(seconds, LIMIT_SECONDS),
        ),
        Row(
            "peak resident memory of `suite report`",
            f"{peak.value:.0f} MB",
            f"{LIMIT_MEGABYTES} MB",
            at_most(peak, LIMIT_MEGABYTES),
        ),
    ]
