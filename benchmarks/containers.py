"""What a container costs: until the worker speaks, against `docker run`, and in throughput, against this machine."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.ranks import one_manifest
from benchmarks.verdict import Interval, Row, at_most, median, within
from suite.bundle.record import Record
from suite.bundle.store import Bundle, find_bundles
from suite.conduct.running.containers import open_containers
from suite.conduct.running.execute import execute
from suite.launch.docker.launcher import DockerLauncher
from suite.launch.docker.settings import DockerSettings
from suite.launch.job import PYTHON, PYTHON_PATH
from suite.launch.local import LocalLauncher
from suite.launch.outcome import Launcher
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest, Run
from suite.stats.compare import compare
from suite.stats.intervals import RunSeconds

BACKEND, SIZE = "deepspeed", "8M"
STARTS = 7
REPEATS = 5
ITERATIONS = 15
LIMIT_SECONDS, LIMIT_SHARE = 0.5, 0.05


def rows() -> list[Row]:
    """One row that says why, without a container runtime and the image."""
    try:
        _, launcher = open_containers(DockerSettings(pull="never"), None, (BACKEND,), "cpu", None, lambda text: None)
    except UsageError as error:
        return [Row("containers", str(error), "none", "not measured")]
    return [*_start_rows(launcher), _throughput_row(launcher)]


def _start_rows(launcher: DockerLauncher) -> list[Row]:
    """All three ways in turns; the first of each is left out."""
    image = launcher.images[BACKEND].id
    rounds = [
        (_seconds_of_suite(image), _seconds_of_further_run(launcher), _seconds_of_docker(image))
        for _ in range(STARTS + 1)
    ]
    first, further, docker = zip(*rounds[1:], strict=True)
    whats = ("from `suite run --launcher docker` to the first event", "the same of a further run of its plan")
    return [
        _start_row(f"{what}, over `docker run`", ours, docker)
        for what, ours in zip(whats, (first, further), strict=True)
    ]


def _start_row(what: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    more = median([first - second for first, second in zip(ours, theirs, strict=True)])
    seconds = f"{median(ours).value:.2f} s against {median(theirs).value:.2f} s"
    figure = f"{more.text('+.2f')} s (median of {STARTS}; {seconds})"
    return Row(what, figure, f"{LIMIT_SECONDS} s", at_most(more, LIMIT_SECONDS))


def _seconds_of_suite(image: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        command = (sys.executable, "-m", "suite", "run", "--launcher", "docker", "--image", image, "--runs", folder)
        work = ("--backend", BACKEND, "--size", "1M", "--repeats", "1", "--warmup", "1", "--iterations", "1")
        subprocess.run((*command, *work), check=True, stdout=subprocess.DEVNULL)
        (bundle,) = find_bundles([Path(folder)])
        return _first_event(bundle) - began


def _seconds_of_further_run(launcher: DockerLauncher) -> float:
    """A run as a session goes on to it: all is imported, and the runtime and the image are known."""
    with tempfile.TemporaryDirectory() as folder:
        manifest = one_manifest(BACKEND, "1M", 1, 1)
        began = time.time()
        _executed(manifest, Path(folder), launcher, PYTHON, "further")
        (bundle,) = find_bundles([Path(folder)])
        return _first_event(bundle) - began


def _seconds_of_docker(image: str) -> float:
    """The worker alone in a container of the same image, started by hand."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = Bundle.create(Path(folder), one_manifest(BACKEND, "1M", 1, 1))
        where = f"/work/runs/{bundle.id}"
        began = time.time()
        subprocess.run(
            (
                *("docker", "run", "--rm", "--init", "--user", f"{os.getuid()}:{os.getgid()}"),
                *("--volume", f"{bundle.path}:{where}", "--env", f"PYTHONPATH={PYTHON_PATH}"),
                *("--env", "OMP_NUM_THREADS=1", "--env", "DS_ACCELERATOR=cpu", "--entrypoint", PYTHON, image),
                *("-m", "suite.worker", f"{where}/manifest.json", "--bundle", where),
            ),
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return _first_event(bundle) - began


def _first_event(bundle: Bundle) -> float:
    with (bundle.path / "events" / "rank-0.jsonl").open() as lines:
        return json.loads(next(lines))["time"]


def _throughput_row(launcher: DockerLauncher) -> Row:
    """The same stack in a container and on the host, in turns."""
    manifest = one_manifest(BACKEND, SIZE, 1, ITERATIONS)
    inside, outside = [], []
    with tempfile.TemporaryDirectory() as folder:
        for repeat in range(1, REPEATS + 1):
            inside.append(_measured(manifest, Path(folder), launcher, PYTHON, f"inside-{repeat}"))
            outside.append(_measured(manifest, Path(folder), LocalLauncher(), sys.executable, f"outside-{repeat}"))
    result = compare(inside, outside)
    ratio = Interval(result.ratio.value, result.ratio.low, result.ratio.high)
    what = f"rate in a container over rate on the host, {BACKEND} {SIZE}, {REPEATS} runs each"
    verdict = within(ratio, 1 - LIMIT_SHARE, 1 + LIMIT_SHARE)
    return Row(what, ratio.text(".3f"), f"within {LIMIT_SHARE:.0%}", verdict)


def _measured(manifest: Manifest, folder: Path, launcher: Launcher, python: str, name: str) -> RunSeconds:
    record = _executed(manifest, folder, launcher, python, name)
    if record.counts is None:
        raise RuntimeError(f"{name} has no work")
    return RunSeconds(record.counts.samples, record.iterations.seconds[manifest.measure.warmup :])


def _executed(manifest: Manifest, folder: Path, launcher: Launcher, python: str, name: str) -> Record:
    """Raises RuntimeError where the run fails."""
    manifest = manifest.model_copy(update={"run": Run(id=name, plan="containers", repeat=1)})
    record = execute(manifest, folder, launcher, python, lambda event: None)
    if record.status != "ok":
        raise RuntimeError(f"{name} failed: {record.failure}")
    return record
