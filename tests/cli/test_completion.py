"""What the shell offers, asked for the way the shell asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from suite.backends.registry import backends
from suite.spec.catalogue import devices, ladders, sizes, workloads
from suite.spec.presets import presets

ROOT = Path(__file__).resolve().parents[2]


def offered(line: str, cwd: Path) -> list[str]:
    """What bash is given for a command line whose last word is being typed."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "_SUITE_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [sys.executable, "-m", "suite"], cwd=cwd, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("suite run --size ", list(sizes())),
        ("suite submit slurm --size ", list(sizes())),
        ("suite run --ladder ", list(ladders())),
        ("suite sizes --ladder ", list(ladders())),
        ("suite run --backend meg", ["megatron"]),
        ("suite plan --backend ", list(backends())),
        ("suite run --workload ", list(workloads())),
        ("suite run --preset ", list(presets())),
        ("suite plan --device ", list(devices())),
        ("suite run --device c", ["cpu", "cuda"]),
        ("suite plan --size 66", [name for name in sizes() if name.startswith("66")]),
        ("suite re", ["report", "rerun", "render"]),
        ("suite images lo", ["lock"]),
    ],
)
def test_names_are_offered_and_no_files(line: str, names: list[str], tmp_path: Path) -> None:
    (tmp_path / "a-file.txt").touch()
    assert offered(line, tmp_path) == names


def test_runs_that_were_submitted_are_offered_once(tmp_path: Path) -> None:
    from suite.launch.cluster.submission import submission_path

    for name in ("deepspeed-1M-n1-abc-1", "deepspeed-1M-n1-abc-2", "megatron-1M-n1-abc-1"):
        path = submission_path(tmp_path / "results", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    found = ["deepspeed-1M-n1-abc-1", "deepspeed-1M-n1-abc-2"]
    assert offered("suite collect --runs results deep", tmp_path) == found
    assert offered(f"suite collect --runs results {found[0]} deep", tmp_path) == found[1:]
    assert offered("suite collect deep", tmp_path) == []
