"""The commands around clusters where no cluster is: what they render, skip and refuse."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from suite.bundle.derive import derive
from suite.bundle.store import Bundle
from suite.launch.cluster.submission import read_submission, submission_path
from tests.command import suite
from tests.synthetic import driver_events, rank_events, write_bundle

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--backend", "deepspeed", "--size", "1M", "--device", "cpu", "--gpus-per-node", "2", "--repeats", "1")
#: runs are identified by what is in it
ENGINES = str(ROOT / "tests/cli/engines.sqsh")
BIG = ("--backend", "megatron", "--size", "66B", "--nodes", "4", "--image", ENGINES, "--repeats", "1")


@pytest.fixture(autouse=True)
def _without_slurm(script: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("submit", "slurm", *SMALL), "there is no Slurm here: sbatch is not on the PATH"),
        (("submit", "slurm", *BIG, "--tp", "3"), "do not divide"),
        (("render", "slurm", *BIG, "--gpu", "H1000"), "there is no device 'H1000'"),
        (("render", "slurm", *BIG, "--backend", "trlx-nemo"), "--stack"),
        (("render", "slurm", *SMALL, "--container", "pyxis"), "without an image"),
        (("render", "slurm", *BIG, "--container", "none"), "beside --image"),
        (("render", "slurm", *BIG, "--image", "/nowhere/engines.sqsh"), "must be readable here"),
        (("render", "slurm", *SMALL, "--sbatch=--output=mine"), "output is set by the results folder (--runs)"),
        (("render", "slurm", *SMALL, "--env", "OMP_NUM_THREADS=4"), "--threads"),
        (("render", "slurm", *SMALL, "--mount", "/data:/data"), "without --image"),
        (("render", "slurm", *BIG, "--mount", "data:/data"), "absolute paths"),
        (("render", "slurm", *SMALL, "--env", "A"), "NAME=VALUE"),
        (
            ("render", "slurm", *SMALL, "--timeout", "5m", "--hang-timeout", "10m"),
            "--hang-timeout 10m is longer than --timeout 5m",
        ),
        (("cancel", "nobody"), "nobody was not submitted from"),
        (("cancel",), "--all"),
    ],
)
def test_a_mistake_is_one_clear_line_and_leaves_nothing(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = suite(*arguments, "--runs", str(runs))
    assert done.exit_code == 2, done.stdout
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not runs.exists()


def test_the_preset_brings_its_own_nodes_and_an_array_joins_what_asks_for_the_same(tmp_path: Path) -> None:
    preset = ("--preset", "ladder", "--backend", "megatron", "--image", ENGINES, "--array")
    preset += ("--timeout", "1h", "--hang-timeout", "10m", "--iterations", "8")  # equal, where the time is not
    done = suite("render", "slurm", *preset, "--repeats", "2", "--json", "--runs", str(tmp_path / "runs"))
    assert done.exit_code == 0, done.stderr
    scripts = json.loads(done.stdout)["scripts"]
    assert sorted(len(script["runs"]) for script in scripts) == [4, 8]


def test_the_starter_srun_may_still_be_called_engine(tmp_path: Path) -> None:
    printed = []
    for word in ("srun", "engine", "torchrun"):
        done = suite("render", "slurm", *SMALL, "--starter", word, "--runs", str(tmp_path / "runs"))
        assert done.exit_code == 0, done.stderr
        printed.append(done.stdout)
    assert printed[0] == printed[1] != printed[2]


def test_scripts_in_a_folder_come_with_what_collects_their_runs(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    done = suite("render", "slurm", *SMALL, "--runs", str(runs), "-o", str(tmp_path / "scripts"))
    (path,) = (tmp_path / "scripts").iterdir()
    assert done.stdout == f"sbatch {path}\n"
    subprocess.run(["/bin/bash", "-n", str(path)], check=True)
    assert [entry.name for entry in (runs / ".submitted").iterdir()] == [f"{path.stem}.json"]


def test_what_the_results_folder_holds_is_not_submitted_again(tmp_path: Path) -> None:
    printed = json.loads(suite("render", "slurm", *SMALL, "--json", "--runs", str(tmp_path / "runs")).stdout)
    (run_id,) = printed["scripts"][0]["runs"]
    suite("render", "slurm", *SMALL, "--runs", str(tmp_path / "runs"), "-o", str(tmp_path / "scripts"))
    manifest = read_submission(submission_path(tmp_path / "runs", run_id)).manifest
    events = {rank: rank_events(manifest, rank, lambda iteration, rank: 1.0) for rank in range(2)}
    bundle = Bundle(write_bundle(tmp_path / "runs", manifest, events, driver_events(manifest, "ok")))
    bundle.write_record(derive(bundle))
    done = suite("submit", "slurm", *SMALL, "--runs", str(tmp_path / "runs"))
    assert done.exit_code == 0, done.stderr
    assert f"done, so not submitted: {run_id}" in done.stdout
    assert "collected" in suite("status", "--runs", str(tmp_path / "runs")).stdout


def test_a_folder_from_which_nothing_was_submitted_says_so(tmp_path: Path) -> None:
    for command, words in (("status", "nothing was submitted"), ("collect", "nothing to collect")):
        done = suite(command, "--runs", str(tmp_path))
        assert done.exit_code == 0
        assert words in done.stdout
    assert json.loads(suite("status", "--json", "--runs", str(tmp_path)).stdout) == []


LARGEST = ("--preset", "ladder", "--size", "66B", "--repeats", "2")
IMAGES = {"slurm": ENGINES, "kubernetes": f"registry.example/suite@sha256:{'a' * 64}"}


@pytest.mark.parametrize("launcher", ["slurm", "kubernetes"])
def test_a_dry_run_shows_what_is_expected_and_touches_nothing(launcher: str, tmp_path: Path) -> None:
    runs = ("--runs", str(tmp_path / "runs"))
    known = (*LARGEST, "--image", IMAGES[launcher], "--gpu", "A100-SXM-80GB", "--price", "2", *runs)
    done = suite("submit", launcher, *known, "--dry-run")
    assert done.exit_code == 0, done.stderr
    for word in ("expected of each run", "GiB", "limit", "GPU-h", "cost", "nothing was run"):
        assert word in done.stdout
    body = json.loads(suite("submit", launcher, *known, "--dry-run", "--json").stdout)
    assert len(body["runs"]) == 4 and body["expected"]["runs"] == 4
    assert body["expected"]["cost"] == pytest.approx(2 * body["expected"]["gpu_hours"])
    for row in body["runs"]:
        assert row["expected"]["fits"] and row["expected"]["run_seconds"] < row["limit_seconds"]
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "command",
    [("submit", "slurm"), ("submit", "slurm", "--dry-run"), ("submit", "kubernetes", "--dry-run"), ("render", "slurm")],
)
def test_a_row_that_will_not_fit_is_refused_and_forced(command: tuple[str, ...], tmp_path: Path) -> None:
    chosen = ("--image", IMAGES[command[1]], "--backend", "megatron", "--tp", "8", "--gpu", "A100-SXM-80GB")
    chosen += ("--runs", str(tmp_path / "runs"))
    done = suite(*command, *LARGEST, *chosen)
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith("error: megatron 66B tp8 dp4 sp dist-opt is expected to need ")
    assert "is expected to fit; --force runs it all the same" in done.stderr
    forced = suite(*command, *LARGEST, *chosen, "--force")
    if command == ("submit", "slurm"):
        assert "there is no Slurm here" in forced.stderr
    else:
        assert forced.exit_code == 0 and "warning: megatron 66B" in forced.stderr
    assert not (tmp_path / "runs").exists()


def test_nodes_whose_gpu_nobody_named_are_not_checked_and_it_is_said(tmp_path: Path) -> None:
    done = suite("render", "slurm", *LARGEST, "--image", IMAGES["slurm"], "--runs", str(tmp_path / "runs"))
    assert done.exit_code == 0
    assert "not checked: memory, time and cost of these runs, because the GPU is not known; --gpu names it" in (
        done.stderr
    )
