"""How long a report over 1,000 bundles takes, and how much memory."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000


def rows() -> list[tuple[str, str, str]]:
    """Figures for the table: what, figure, limit."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_runs(folder / "runs")
        runs = [measure(folder) for _ in range(5)]
    seconds, megabytes = statistics.median(run[0] for run in runs), max(run[1] for run in runs)
    return [
        (
            f"`suite report` over {BUNDLES:,} bundles",
            f"{seconds:.2f} s (median of {len(runs)})",
            f"{LIMIT_SECONDS:.0f} s",
        ),
        ("its peak resident memory", f"{megabytes:.0f} MB", f"{LIMIT_MEGABYTES} MB"),
    ]
