"""A backend of another package, really installed: listed, examined, measured and verified like the suite's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
