"""Several numbers of nodes in one command, one run at a time, and what a dry run shows of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import suite

STACK = ("--stack", "torch=1", "--stack", "deepspeed=1", "--stack", "transformers=1")
SMALL = ("--backend", "deepspeed", "--size", "1M", "--device", "cpu", "--gpus-per-node", "2", "--repeats", "1", *STACK)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("nodes", [("--nodes", "1", "--nodes", "2", "--nodes", "4"), ("--nodes", "1,2,4")])
def test_a_list_of_nodes_is_a_run_of_each(nodes: tuple[str, ...]) -> None:
    done = suite("render", "slurm", *SMALL, *nodes, "--json")
    assert done.exit_code == 0, done.output
    scripts = json.loads(done.stdout)["scripts"]
    for script, count in zip(scripts, (1, 2, 4), strict=True):
        assert script["text"].count(f"#SBATCH --nodes={count}\n") == 1
    assert [script["runs"][0].split("-n")[1].split("-")[0] for script in scripts] == ["2", "4", "8"]


def test_one_number_of_nodes_is_the_plan_that_it_always_was() -> None:
    once, twice = (
        json.loads(suite("render", "slurm", *SMALL, "--nodes", text, "--json").stdout) for text in ("2", "2,2")
    )
    assert once == twice


def test_a_preset_is_measured_on_other_nodes_than_its_own(tmp_path: Path) -> None:
    (tmp_path / "engines.sqsh").write_bytes(b"an image")
    preset = ("--preset", "ladder", "--backend", "megatron", "--size", "1.3B", "--repeats", "1", "--nodes", "1,2")
    done = suite("render", "slurm", *preset, "--image", str(tmp_path / "engines.sqsh"), "--json")
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)["scripts"]) == 2


def test_scripts_that_are_handed_over_by_hand_wait_for_each_other() -> None:
    done = suite("render", "slurm", *SMALL, "--nodes", "1,2", "-o", "it's scripts")
    first, second = done.stdout.splitlines()
    assert first.startswith("job=$(sbatch --parsable 'it'\"'\"'s scripts/")
    assert second.startswith("job=$(sbatch --parsable --dependency=afterany:${job%%;*} ")
    side = suite("render", "slurm", *SMALL, "--nodes", "1,2", "-o", "others", "--at-once", "2", "--runs", "two")
    assert [line.split()[0] for line in side.stdout.splitlines()] == ["sbatch", "sbatch"]


def test_a_dry_run_shows_what_would_be_sent_and_leaves_nothing(tmp_path: Path) -> None:
    done = suite("submit", "slurm", *SMALL, "--nodes", "1,2", "--partition", "gpu", "--dry-run")
    assert done.exit_code == 0, done.output
    assert done.stdout.count("would be sent, deepspeed-1M-n") == 2
    assert "--partition=gpu" in done.stdout and "--nodes=2" in done.stdout and "srun --nodes=2" in done.stdout
    body = json.loads(suite("submit", "slurm", *SMALL, "--nodes", "1,2", "--dry-run", "--json").stdout)
    assert [len(document["runs"]) for document in body["documents"]] == [1, 1]
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_for_pods_names_their_objects(tmp_path: Path) -> None:
    image = ("--image", "registry.example/x@sha256:" + "a" * 64)
    done = suite("submit", "kubernetes", *SMALL, *image, "--namespace", "lab", "--dry-run")
    assert done.exit_code == 0, done.output
    assert "ConfigMap/suite-deepspeed-1m" in done.stdout and "Job/suite-deepspeed-1m" in done.stdout
    assert "in namespace lab" in done.stdout and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "words"),
    [
        *((("--nodes", text), "--nodes is a number from 1 on") for text in ("0", "two", "1,")),
        (("--cpu-bind", "cores"), "torchrun starts the ranks of a node"),
        (("--cpus-per-task", "4", "--cpus-per-node", "8"), "say the same"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(more: tuple[str, ...], words: str) -> None:
    done = suite("render", "slurm", *SMALL, *more)
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1) and words in done.stderr


def test_ranks_are_bound_as_asked_for() -> None:
    bound = suite("render", "slurm", *SMALL, "--starter", "srun", "--cpu-bind", "cores", "--cpus-per-task", "4").stdout
    assert "    --cpu-bind=cores\n" in bound and bound.count("--cpus-per-task=4\n") == 2
    hinted = suite("render", "slurm", *SMALL, "--hint", "nomultithread").stdout
    assert hinted.count("--hint=nomultithread\n") == 2 and "--cpu-bind" not in hinted
    assert "    --cpu-bind=none\n" in suite("render", "slurm", *SMALL).stdout


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--cpus-per-node", "7500m", "--memory-per-rank", "8g"), "no whole number"),
        (("--cpus-per-node", "8"), "pods are not Guaranteed"),
        (("--cpus-per-node", "8", "--memory-per-rank", "8g"), None),
    ],
)
def test_pods_that_get_no_cores_of_their_own_are_told(more: tuple[str, ...], words: str | None) -> None:
    done = suite("render", "kubernetes", *SMALL, "--image", "registry.example/x@sha256:" + "a" * 64, *more)
    assert done.exit_code == 0
    assert (words in done.stderr) if words else "static CPU manager" not in done.stderr
