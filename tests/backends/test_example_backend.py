"""A backend of another package, really installed: listed, examined, measured and verified like the suite's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.needs import require_environment

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "tests" / "example_backend"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the installed package, built without network."""
    target = tmp_path_factory.mktemp("site")
    options = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, PACKAGE], check=True)
    return target


def suite(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(site)}
    return subprocess.run(
        [sys.executable, "-m", "suite", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )


def test_it_is_listed_with_its_versions(site: Path) -> None:
    found = {entry["name"]: entry for entry in json.loads(suite(site, "backends", "--json").stdout)}
    assert found["example-torch"]["kind"] == "engine"
    assert found["example-torch"]["packages"]["suite-example-backend"] == "1.0"
    assert "deepspeed" in found, "the suite's own stay"


def test_what_it_refuses_is_told_in_its_own_words(site: Path) -> None:
    said = suite(site, "run", "--backend", "example-torch", "--size", "1M", "--precision", "bf16", "--device", "cpu")
    assert said.returncode == 2
    assert "example-torch can run nothing of this: the toy computes in fp32, not in bf16" in said.stderr


@pytest.mark.ranks
def test_two_ranks_of_it_are_measured_and_verified(site: Path, tmp_path: Path) -> None:
    asked = ("--backend", "example-torch", "--size", "1M", "--ranks", "2", "--repeats", "1", "--iterations", "3")
    done = suite(site, "run", *asked, "--device", "cpu", "--runs", str(tmp_path), "--json", "--oversubscribe")
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["measured"]
    record = json.loads((tmp_path / run / "record.json").read_text())
    assert (record["run"]["backend"], record["run"]["ranks"]) == ("example-torch", 2)
    assert record["counts"]["response_tokens"] == 2 * 4 * 8
    assert record["environment"]["worker"]["notes"][-1] == "a toy: its figures say nothing of any stack"
    assert record["environment"]["worker"]["packages"]["suite-example-backend"] == "1.0"
    assert suite(site, "verify", str(tmp_path / run)).returncode == 0


@pytest.fixture
def ray_python() -> str:
    """An interpreter with Ray: that of the environment which the toy says it needs."""
    return require_environment("verl")


def asked_of_ray(python: str, runs: Path, *more: str) -> tuple[str, ...]:
    asked = ("--backend", "example-ray", "--size", "1M", "--ranks", "2", "--repeats", "1", "--device", "cpu", *more)
    return ("run", *asked, "--runs", str(runs), "--json", "--oversubscribe", "--python", f"verl={python}")


def left_behind() -> set[str]:
    """Ray's processes and folders on this machine."""
    names = {str(path) for path in Path("/tmp").glob("suite-ray-*")}
    for process in psutil.process_iter(("name", "cmdline")):
        line = " ".join(process.info["cmdline"] or ())
        if "raylet" in line or "gcs_server" in line:
            names.add(f"{process.pid} {line[:60]}")
    return names


@pytest.mark.ranks
@pytest.mark.trainers
def test_ranks_follow_a_trainer_on_ray(site: Path, tmp_path: Path, ray_python: str) -> None:
    before = left_behind()
    done = suite(site, *asked_of_ray(ray_python, tmp_path, "--iterations", "3"))
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["measured"]
    record = json.loads((tmp_path / run / "record.json").read_text())
    assert (record["run"]["backend"], record["run"]["ranks"]) == ("example-ray", 2)
    assert set(record["phases"]) >= {"generate", "train", "other"}
    events = [
        [json.loads(line) for line in (tmp_path / run / "events" / f"rank-{rank}.jsonl").open()] for rank in (0, 1)
    ]
    kinds = [[(event["kind"], event.get("phase"), event.get("iteration")) for event in rank] for rank in events]
    assert kinds[0] == kinds[1], "the second rank did what the first one did"
    assert record["memory"]["peak_resident_bytes"] > 100 << 20, "Ray's processes, not the rank's own"
    assert record["memory"]["peak_allocated_bytes"] is None, "nobody knows it"
    assert suite(site, "verify", str(tmp_path / run)).returncode == 0
    assert left_behind() <= before


@pytest.mark.ranks
@pytest.mark.trainers
def test_nothing_of_ray_stays_behind_a_killed_launcher(site: Path, tmp_path: Path, ray_python: str) -> None:
    before = left_behind()
    environment = {**os.environ, "PYTHONPATH": str(site)}
    argv = [sys.executable, "-m", "suite", *asked_of_ray(ray_python, tmp_path, "--iterations", "100000")]
    launcher = subprocess.Popen(argv, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not any('"kind":"iteration"' in path.read_text() for path in tmp_path.glob("*/events/rank-1.jsonl")):
            assert launcher.poll() is None and time.monotonic() < deadline, "it never came to its first iteration"
            time.sleep(0.1)
        assert left_behind() - before, "Ray runs"
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    deadline = time.monotonic() + 20
    while left_behind() - before:
        assert time.monotonic() < deadline, left_behind() - before
        time.sleep(0.2)


def test_an_interpreter_without_ray_is_told_before_the_run(site: Path, tmp_path: Path) -> None:
    said = suite(site, *asked_of_ray(sys.executable, tmp_path))
    assert said.returncode == 2
    assert "example-ray needs ray" in said.stderr
