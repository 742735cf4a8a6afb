"""Real DeepSpeed ranks on the CPU, from the command line to their events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from suite.bundle.event_fields import FIELDS, wrong_field
from suite.launch.ports import free_port
from suite.spec.manifest import Manifest
from suite.theory.parameters import parameter_count, trainable_count
from suite.worker.loop import expected_counts
from tests.worker.tiny import (
    ROOT,
    Finished,
    clean_environment,
    run_tiny,
    start_ranks,
    tiny_manifest,
    wait_for,
    write_manifest,
)

pytestmark = pytest.mark.ranks


def assert_done(run: Finished, manifest: Manifest) -> None:
    """Every rank ended well, wrote valid events, and counted what the manifest asks and the shape has."""
    assert run.exit_codes == [0] * manifest.layout.ranks, run.errors
    body = json.loads(manifest.model_dump_json(by_alias=True))
    wanted = {
        **expected_counts(body["workload"], body["work"]),
        "total_parameters": parameter_count(manifest.size).with_value_head,
        "trainable_parameters": trainable_count(manifest.size, manifest.workload.trainable_layers),
    }
    total = manifest.measure.warmup + manifest.measure.iterations
    for rank in range(manifest.layout.ranks):
        events = run.events(rank)
        assert not [problem for event in events if (problem := wrong_field(event, FIELDS["rank"][event["kind"]], ""))]
        assert [event["counts"] for event in run.events(rank, "iteration")] == [wanted] * total
        assert (events[-1]["kind"], events[-1]["status"], events[-1]["iterations"]) == ("end", "ok", total)


def losses(run: Finished, name: str = "loss") -> list[float]:
    return [event["stats"][name] for event in run.events(kind="iteration")]


def environment(run: Finished) -> dict[str, Any]:
    facts: dict[str, Any] = run.events(kind="environment")[0]["facts"]
    return facts


ONE_RANK: dict[str, dict[str, Any]] = {
    "plain": {},
    "untied-bf16": {"shape": {"tied_embeddings": False, "vocab": 100}, "measure": {"precision": "bf16"}},
    "steps-epochs-recompute": {
        "layout": {"recompute": "full", "zero_stage": 1},
        "workload": {"optimizer_steps": 2, "ppo_epochs": 2, "rollouts": 8},
    },
    "frozen": {"workload": {"trainable_layers": 1}, "layout": {"zero_stage": 2}},
    "hydra": {"shape": {"vocab": 100}, "workload": {"trainable_layers": 1, "reference": "hydra"}},
    "offloaded": {
        "shape": {"vocab": 100},
        "layout": {"zero_stage": 3, "offload_optimizer": True, "offload_parameters": True},
    },
}


@pytest.mark.parametrize("case", ONE_RANK)
def test_one_rank_does_the_manifests_work(tmp_path: Path, case: str) -> None:
    manifest = tiny_manifest(**ONE_RANK[case])
    run = run_tiny(tmp_path, manifest)
    assert_done(run, manifest)
    # Before the first optimizer step the reference is the policy, however it was built.
    assert losses(run, "kl")[0] == pytest.approx(0.0, abs=1e-6)
    facts = environment(run)
    assert facts["packages"].items() >= manifest.stack.items()
    assert facts["ceilings"]["matmul_flops"] > 0
    assert facts["network"] is facts["communicators"] is facts["allow_tf32"] is None
    assert facts["resident_baseline_bytes"] > 0
    assert run.events(kind="memory")[0]["phase"] == "setup"


@pytest.mark.parametrize("stage", [1, pytest.param(2, marks=pytest.mark.thorough), 3])
def test_two_ranks_share_the_work_under_zero(tmp_path: Path, stage: int) -> None:
    manifest = tiny_manifest(2, layout={"zero_stage": stage}, shape={"vocab": 100})
    run = run_tiny(tmp_path, manifest)
    assert_done(run, manifest)
    assert run.events(0, "iteration")[-1]["stats"] == run.events(1, "iteration")[-1]["stats"]
    assert losses(run, "gradient_norm")[0] > 0
    assert {one["scope"] for one in environment(run)["network"]["measurements"]} == {"within_node"}


def test_two_ranks_share_a_hydra_reference_under_zero_3(tmp_path: Path) -> None:
    workload = {"trainable_layers": 1, "reference": "hydra"}
    layout = {"zero_stage": 3, "recompute": "full", "gather_for_generation": True}
    manifest = tiny_manifest(2, layout=layout, workload=workload)
    run = run_tiny(tmp_path, manifest)
    assert_done(run, manifest)
    assert losses(run, "kl")[0] == pytest.approx(0.0, abs=1e-6)
    assert losses(run, "kl")[-1] != 0.0


def test_the_same_seed_gives_the_same_run_and_another_seed_another(tmp_path: Path) -> None:
    seeds = {"first": 7, "again": 7, "other": 8}
    rewarded = {"reward": {"kind": "token-below", "threshold": 64}}
    runs = {
        name: run_tiny(tmp_path / name, tiny_manifest(measure={"seed": seed}, workload=rewarded))
        for name, seed in seeds.items()
    }
    assert losses(runs["first"], "reward") == losses(runs["again"], "reward")
    assert losses(runs["first"]) == losses(runs["again"])
    assert losses(runs["first"]) != losses(runs["other"])


@pytest.mark.thorough  # tests/conduct/running/test_engines.py has it learn in every round
def test_it_learns_a_reward_that_can_be_learned(tmp_path: Path) -> None:
    manifest = tiny_manifest(
        workload={
            "rollouts": 32,
            "micro_batch": 16,
            "ppo_epochs": 2,
            "optimizer_steps": 2,
            "reward": {"kind": "token-below", "threshold": 32},
            "ppo": {"kl_coefficient": 0.0},
            "optimizer": {"learning_rate": 3e-3},
        },
        measure={"iterations": 30},
    )
    run = run_tiny(tmp_path, manifest)
    assert run.exit_codes == [0]
    rewards, value_losses = losses(run, "reward"), losses(run, "value_loss")
    assert sum(rewards[:3]) / 3 < 0.4  # a quarter of the vocabulary, by chance
    assert sum(rewards[-3:]) / 3 > 0.8
    assert sum(value_losses[-3:]) < sum(value_losses[:3]) / 2


@pytest.mark.thorough  # Slurm's tests and the API server's start it on two nodes in every round
def test_torchrun_starts_it_on_two_nodes(tmp_path: Path) -> None:
    manifest = tiny_manifest(2, nodes=2, layout={"zero_stage": 1})
    path = write_manifest(manifest, tmp_path / "in")
    bundle, port = tmp_path / "bundle", free_port()
    nodes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"),
                *("--node-rank", str(node), "--master-addr", "127.0.0.1", "--master-port", str(port)),
                *("-m", "suite.worker", str(path), "--bundle", str(bundle)),
            ],
            cwd=ROOT,
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for node in range(2)
    ]
    run = wait_for(nodes, bundle)
    assert_done(run, manifest)
    assert [run.events(rank, "start")[0]["local_rank"] for rank in range(2)] == [0, 0]
    assert {one["scope"] for one in environment(run)["network"]["measurements"]} == {"across_nodes"}


def test_a_shape_that_gpt2_cannot_have_is_a_config_failure(tmp_path: Path) -> None:
    run = run_tiny(tmp_path, tiny_manifest(shape={"kv_heads": 2}))
    assert run.exit_codes == [1]
    failure = run.events(kind="failure")[0]
    assert (failure["failure"], failure["phase"]) == ("config", "setup")
    assert "2 kv heads" in failure["evidence"][0]
    assert run.events(kind="environment")


def test_the_rank_beside_a_killed_one_says_so_and_keeps_its_iterations(tmp_path: Path) -> None:
    manifest = tiny_manifest(2, layout={"zero_stage": 1}, measure={"iterations": 10_000})
    processes = start_ranks(write_manifest(manifest, tmp_path), 2)
    await_event(tmp_path / "events" / "rank-1.jsonl", '"kind":"iteration"')
    processes[1].send_signal(signal.SIGKILL)
    run = wait_for(processes, tmp_path)
    assert run.exit_codes == [1, -signal.SIGKILL]
    failure, end = run.events(0)[-2:]
    assert (failure["kind"], failure["failure"]) == ("failure", "rank_lost")
    assert end["iterations"] == len(run.events(0, "iteration")) > 0
    assert run.events(1, "iteration")


def test_the_rank_beside_a_stopped_one_gives_up_after_the_silence_allowed(tmp_path: Path) -> None:
    manifest = tiny_manifest(2, layout={"zero_stage": 1}, measure={"iterations": 10_000}, silence_seconds=20)
    processes = start_ranks(write_manifest(manifest, tmp_path), 2)
    await_event(tmp_path / "events" / "rank-1.jsonl", '"kind":"iteration"')
    processes[1].send_signal(signal.SIGSTOP)
    assert processes[0].wait(timeout=60) == 1
    processes[1].kill()
    failure = wait_for(processes, tmp_path).events(0, "failure")[0]
    assert failure["failure"] == "nccl_timeout", failure
    assert failure["evidence"]


def test_a_rank_does_not_outlive_its_launcher_and_shows_its_stacks(tmp_path: Path) -> None:
    manifest = tiny_manifest(measure={"iterations": 10_000})
    path = write_manifest(manifest, tmp_path)
    errors = tmp_path / "errors"
    code = "import subprocess, sys, time; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); time.sleep(999)"
    launcher = subprocess.Popen(
        [sys.executable, "-c", code, sys.executable, "-m", "suite.worker", str(path)],
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=errors.open("w"),
        text=True,
    )
    assert launcher.stdout is not None
    rank = int(launcher.stdout.readline())
    await_event(tmp_path / "events" / "rank-0.jsonl", '"kind":"iteration"')
    os.kill(rank, signal.SIGUSR1)
    await_event(errors, "run_iteration")
    launcher.kill()
    launcher.communicate()
    deadline = time.monotonic() + 20
    while is_running(rank) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(rank)


def await_event(path: Path, text: str, seconds: float = 90.0) -> None:
    """Return when ``text`` is in the file; fail when it is not there in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if path.exists() and text in path.read_text():
            return
        time.sleep(0.1)
    pytest.fail(f"{path.name} never held {text}")


def is_running(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
