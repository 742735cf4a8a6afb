"""Real stacks in real containers, beside the same work on the host: measured, verified, and never mixed up."""

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
BOTH = ("--backend", "deepspeed", "--backend", "megatron")


def run(runtime: Runtime, runs: Path, *words: str) -> None:
    command = (sys.executable, "-m", "suite", "run", "--runs", str(runs), *BOTH, *SHORT, *words)
    environment = {**os.environ, "DOCKER_HOST": runtime.host}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_size_is_measured_in_the_image_that_the_record_names_beside_the_same_work_on_the_host(
    runtime: Runtime, engines_image: Built, tmp_path: Path
) -> None:
    run(runtime, tmp_path, "--launcher", "docker", "--size", "1M", "--size", "3M")
    run(runtime, tmp_path, "--launcher", "docker", "--size", "8M", "--ranks", "2")
    run(runtime, tmp_path, "--size", "1M")
    bundles = find_bundles([tmp_path])
    assert {verify(bundle).status for bundle in bundles} == {"equal"}
    records = [bundle.record() for bundle in bundles]
    inside = [record for record in records if record.run.launcher == "docker"]
    measured = {(record.run.backend, record.run.size, record.run.ranks) for record in inside}
    sizes = (("1M", 1), ("3M", 1), ("8M", 2))
    assert measured == {(backend, *each) for backend in ("deepspeed", "megatron") for each in sizes}
    for record in inside:
        assert record.status == "ok", record.failure
        assert record.environment.driver["image"]["id"] == engines_image.id
        assert record.environment.worker["container"] is not None
        assert record.environment.worker["cpu"]["threads"] is not None
    same = [record.run for record in records if record.run.size == "1M"]
    assert {run.launcher for run in same} == {"docker", "local"} and len({run.work_hash for run in same}) == 1
