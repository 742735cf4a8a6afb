"""Real stacks in real containers, beside the same work on the host: measured, verified, reported, never mixed up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from suite.bundle.store import find_bundles
from suite.bundle.verify import verify
from suite.images.build import Built
from tests.container_runtime import Runtime

pytestmark = [pytest.mark.daemon, pytest.mark.ranks, pytest.mark.timeout(600)]

SHORT = ("--device", "cpu", "--warmup", "1", "--iterations", "2", "--repeats", "1")
SIZES = ("1M", "3M")
BOTH = ("--backend", "deepspeed", "--backend", "megatron")


def suite(runtime: Runtime, *arguments: str) -> str:
    done = subprocess.run(
        (sys.executable, "-m", "suite", *arguments),
        env={**os.environ, "DOCKER_HOST": runtime.host},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def runs(runtime: Runtime, engines_image: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The smaller half of the CPU ladder in containers, the next size on two ranks, and the smallest on the host."""
    folder = tmp_path_factory.mktemp("runs")
    where = ("run", "--runs", str(folder), *BOTH, *SHORT)
    suite(runtime, *where, "--launcher", "docker", *(word for size in SIZES for word in ("--size", size)))
    suite(runtime, *where, "--launcher", "docker", "--size", "8M", "--ranks", "2")
    suite(runtime, *where, "--size", "1M")
    return folder


def test_every_size_is_measured_in_the_image_that_the_record_names(runs: Path, engines_image: Built) -> None:
    records = [bundle.record() for bundle in find_bundles([runs])]
    inside = [record for record in records if record.run.launcher == "docker"]
    measured = {(record.run.backend, record.run.size, record.run.ranks) for record in inside}
    alone = {(backend, size, 1) for backend in ("deepspeed", "megatron") for size in SIZES}
    assert measured == alone | {("deepspeed", "8M", 2), ("megatron", "8M", 2)}
    assert {verify(bundle).status for bundle in find_bundles([runs])} == {"equal"}
    for record in inside:
        assert record.status == "ok", record.failure
        assert record.environment.driver["image"]["id"] == engines_image.id
        assert record.environment.worker["container"] is not None
        assert record.environment.worker["cpu"]["threads"] is not None


def test_the_same_work_inside_and_outside_stands_in_rows_of_its_own(
    runs: Path, tmp_path: Path, runtime: Runtime
) -> None:
    """Equal manifests, so equal work, and yet not repeats of each other: the place is another."""
    found = [bundle.record().run for bundle in find_bundles([runs])]
    same = [run for run in found if (run.size, run.backend) == ("1M", "megatron")]
    assert {run.launcher for run in same} == {"docker", "local"} and len({run.work_hash for run in same}) == 1
    report = tmp_path / "report.md"
    suite(runtime, "report", str(runs), "-o", str(report))
    rows = [line for line in report.read_text().splitlines() if line.startswith("| 1M ") or "megatron" in line]
    assert sum("megatron" in row and "dist-opt" in row for row in rows) >= 4
    assert "docker" in report.read_text() and "local" in report.read_text()


def test_runs_beside_each_other_have_cores_of_their_own_and_say_so(
    runtime: Runtime, engines_image: Built, tmp_path: Path
) -> None:
    beside = ("--launcher", "docker", "--parallel", "2", "--size", "1M", "--cpuset", "0-1")
    suite(runtime, "run", "--runs", str(tmp_path), *BOTH, *SHORT, *beside)
    drivers = [bundle.record().environment.driver for bundle in find_bundles([tmp_path])]
    assert sorted(driver["container"]["cpuset"] for driver in drivers) == ["0", "1"]
    assert {driver["runs_at_once"] for driver in drivers} == {2}
