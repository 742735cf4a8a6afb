"""How long a site of 10,000 runs takes: `python -m benchmarks.site_speed` prints a table of docs/results/checks.md."""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from unittest.mock import patch

import tests.synthetic
from benchmarks.report_speed import measure
from suite.bundle.cache.survey import SETTLED_SECONDS
from suite.bundle.derive import derive
from suite.bundle.facts import NEWEST_DERIVATION
from suite.bundle.store import Bundle, written
from suite.spec.catalogue import sizes
from suite.theory.memory import memory_floor
from tests.synthetic import BEGAN, HOUR, facts_of, make_bundle, synthetic_manifest

NIGHTS, ROWS, REPEATS = 100, 20, 5
COLD_SECONDS, WARM_SECONDS = 30.0, 3.0
#: From this night on every fourth row is slower, by the commit of that night.
_LOSS_NIGHT, _LOSS = 60, 1.06


def make_night(root: Path, night: int) -> None:
    """Twenty rows, five runs each, in a folder of their own."""
    shapes = list(sizes().values())[: ROWS // 2]
    commit = f"{night // 7:040x}"
    with patch.object(tests.synthetic, "BEGAN", BEGAN + 24 * HOUR * night):
        for index in range(ROWS * REPEATS):
            row, repeat = index % ROWS, index // ROWS + 1
            backend, size = ("deepspeed", "megatron")[row % 2], shapes[row // 2]
            manifest = synthetic_manifest(backend=backend, size=size, repeat=repeat)
            floor = memory_floor(
                manifest.size, manifest.workload, manifest.work, manifest.layout, manifest.measure.precision
            )
            noise = Random(f"{night} {index}")
            mean = (_LOSS if night >= _LOSS_NIGHT and row % 4 == 0 else 1.0) * (1 + noise.gauss(0, 0.015))
            count = manifest.measure.warmup + manifest.measure.iterations
            path = make_bundle(
                root / f"night-{night:03}",
                manifest,
                [mean * (1 + noise.gauss(0, 0.01)) for _ in range(count)],
                memory_bytes=floor.bytes,
                facts={**facts_of(manifest), "derivation": NEWEST_DERIVATION},
            )
            (path / "environment.json").write_text(json.dumps({"suite_version": "1.0", "git_commit": commit}))
            bundle = Bundle(path)
            (path / "record.json").write_text(written(derive(bundle)))


def main() -> None:
    """In a folder that is named, where runs that were made before are used again, or in one of its own."""
    write = sys.stdout.write
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        runs = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "runs"
        for night in range(NIGHTS):
            if not (runs / f"night-{night + 1:03}").exists():  # the last one may not be whole
                shutil.rmtree(runs / f"night-{night:03}", ignore_errors=True)
                make_night(runs, night)
        shutil.rmtree(runs / f"night-{NIGHTS:03}", ignore_errors=True)
        time.sleep(SETTLED_SECONDS + 1)
        words = ["site", str(root / "site"), "--from", str(runs)]
        cases = {"nothing kept": measure(words, root / "cache", None), "all kept": measure(words, root / "cache", None)}
        make_night(runs, NIGHTS)
        time.sleep(SETTLED_SECONDS + 1)
        cases["one night more"] = measure(words, root / "cache", None)
        pages = [path for path in (root / "site").rglob("*") if path.is_file()]
        size = sum(path.stat().st_size for path in pages) / 1e6
        write("| runs | state | seconds that went by | processor time | memory |\n|---:|---|---:|---:|---:|\n")
        for state, one in cases.items():
            runs = (NIGHTS + (state == "one night more")) * ROWS * REPEATS
            write(f"| {runs:,} | {state} | {one.elapsed:.1f} s | {one.processor:.1f} s | {one.megabytes:.0f} MB |\n")
        write(f"\n{len(pages)} files, {size:.1f} MB; load average {os.getloadavg()[0]:.1f}\n")


if __name__ == "__main__":
    main()
