"""How long what shows runs takes over 100, 1,000 and 10,000 bundles, and how much memory."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from shutil import copytree
from typing import NamedTuple

from benchmarks.verdict import Interval, Row, at_most, median
from suite.bundle.cache.place import VARIABLE
from suite.bundle.cache.survey import SETTLED_SECONDS
from suite.bundle.derive import derive
from suite.bundle.facts import NEWEST_DERIVATION
from suite.bundle.store import Bundle, written
from suite.spec.catalogue import sizes
from suite.spec.layout import Layout
from suite.spec.manifest import Manifest
from suite.theory.memory import memory_floor
from tests.synthetic import facts_of, make_bundle, synthetic_manifest

BUNDLES = (100, 1_000, 10_000)
COLD_SECONDS, MEGABYTES = 20.0, 400
#: A bundle among 10,000 may take so much longer than one among 1,000.
LINEAR = 1.25
WARM_TIMES = 3
#: Of the smaller folders; the largest is read cold once, which takes minutes.
COLD_TIMES = 3


class Command(NamedTuple):
    """``words``: with a folder of bundles, one to write to, and how many. ``warm``: seconds over the most of them
    where what they give is kept; where nothing is, only if ``has_cold``."""

    title: str
    words: str
    warm: float
    has_cold: bool = False


COMMANDS = (
    Command("`suite report` over {}", "report {0} -o {1}/report.md", 3.0, has_cold=True),
    Command("`suite compare` with themselves of {}", "compare {0} {0}", 3.0),
    Command("`suite runs list` of {}", "runs list {0}", 1.5),
    Command("`suite site` of {}", "site {1}/site-of-{2} --from {0}", 1.5),
    Command("`suite export` to Parquet of {}", "export {0} -o {1}/runs.parquet", 2.0),
)


class Measured(NamedTuple):
    """Of one process and those that it started: seconds of processor time, of the system's too, seconds that went by,
    and peak megabytes of itself."""

    processor: float
    elapsed: float
    megabytes: float


def make_runs(root: Path) -> None:
    """Bundles with records as today's ranks write them, in a flat folder for each number of them.

    Every size on the ladders, two backends, three rank counts, the rest repeats. All fit together: a report leaves none
    of them out. The smaller folders have the same files as the largest, by hard links.
    """
    shapes = list(sizes().values())
    for index in range(BUNDLES[-1]):
        ranks = (1, 2, 4)[index // 2 % 3]
        manifest = synthetic_manifest(
            backend=("deepspeed", "megatron")[index % 2],
            size=shapes[index // 6 % len(shapes)],
            layout=Layout(devices_per_node=ranks, data=ranks),
            repeat=index // (6 * len(shapes)) + 1,
        )
        bundle = Bundle(_made(root / str(BUNDLES[-1]), manifest, index))
        (bundle.path / "record.json").write_text(written(derive(bundle)))
        for count in BUNDLES[:-1]:
            if index < count:
                copytree(bundle.path, root / str(count) / bundle.id, copy_function=os.link)


def _made(folder: Path, manifest: Manifest, index: int) -> Path:
    """Iterations spread by 1 % in a run and runs by 2 %; ranks leave barriers a little apart, and each takes the least
    memory that its layout needs."""
    floor = memory_floor(manifest.size, manifest.workload, manifest.work, manifest.layout, manifest.measure.precision)
    noise = Random(index)
    mean = 1.0 + noise.gauss(0, 0.02)
    seconds = [mean * (1 + noise.gauss(0, 0.01)) for _ in range(manifest.measure.warmup + manifest.measure.iterations)]
    facts = {**facts_of(manifest), "derivation": NEWEST_DERIVATION}

    def measured(iteration: int, rank: int) -> float:
        return seconds[iteration] * (1 + 1e-4 * rank)

    return make_bundle(folder, manifest, measured, memory_bytes=floor.bytes, facts=facts)


def measure(arguments: Sequence[str], cache: Path, most_cores: int | None = 1) -> Measured:
    """`suite` with these arguments, in a process of its own, which may start others."""
    command, cores = [sys.executable, "-m", "suite", *arguments], os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:most_cores])  # which what is started here inherits
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, VARIABLE: str(cache)})
    os.sched_setaffinity(0, cores)
    _, status, usage = os.wait4(process.pid, 0)  # this child's own memory, not the largest of all children so far
    elapsed = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"suite {arguments[0]} ended with exit code {process.returncode}")
    return Measured(usage.ru_utime + usage.ru_stime, elapsed, usage.ru_maxrss / 1000)


def rows() -> list[Row]:
    commands = [one for one in COMMANDS if find_spec("pyarrow") or ".parquet" not in one.words]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        make_runs(root / "runs")
        time.sleep(SETTLED_SECONDS)
        found = []
        for command in commands:
            warm: list[float] = []
            for count in BUNDLES:
                found += _rows(command, root, count, warm)
            found.append(_linear(command.title.partition(" {}")[0], warm))
    return found


def _rows(command: Command, root: Path, count: int, warm: list[float]) -> Iterator[Row]:
    """Of one number of bundles; adds the processor time of a warm one to ``warm``."""
    is_largest = count == BUNDLES[-1]
    arguments = command.words.format(root / "runs" / str(count), root, count).split()
    cache = root / f"cache-{count}"
    tried = {"all kept": (command.warm, [measure(arguments, cache) for _ in range(1 + WARM_TIMES)][1:])}
    if command.has_cold:
        caches = [root / f"cache-{count}-{number}" for number in range(1 if is_largest else COLD_TIMES)]
        tried["nothing kept"] = (COLD_SECONDS, [measure(arguments, one) for one in caches])
    for state, (limit, runs) in tried.items():
        seconds = median([run.processor for run in runs])
        title = f"{command.title.replace('{}', f'{count:,}')} bundles, {state}"
        yield Row(
            title,
            f"{seconds.text('.2f')} s of processor time, {median([run.elapsed for run in runs]).value:.2f} s went by",
            f"{limit:g} s" if is_largest else "none",
            at_most(seconds, limit) if is_largest else "no limit",
        )
        if is_largest:
            peaks = [run.megabytes for run in runs]
            peak = Interval(max(peaks), min(peaks), max(peaks))
            yield Row("peak resident memory of it", f"{peak.value:.0f} MB", f"{MEGABYTES} MB", at_most(peak, MEGABYTES))
    warm.append(median([run.processor for run in tried["all kept"][1]]).value)


def _linear(command: str, warm: Sequence[float]) -> Row:
    """Processor time of one bundle more, among many over among few."""
    few, some, many = BUNDLES
    ratio = ((warm[2] - warm[1]) / (many - some)) / ((warm[1] - warm[0]) / (some - few))
    return Row(
        f"{command}: one bundle more among {many:,} over one among {some:,}, all kept",
        f"{ratio:.2f}",
        f"{LINEAR:g}",
        at_most(Interval(ratio, ratio, ratio), LINEAR),
    )
