"""Real DeepSpeed ranks on the CPU, from the command line to their events."""

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from suite.bundle.event_fields import FIELDS, wrong_field
from suite.spec.manifest import Manifest
from suite.worker.asked import expected_counts
from tests.theory.shapes import parameters_of
from tests.waiting import wait_until
from tests.worker.engines.cases import cases_of
from tests.worker.tiny import (
    ROOT,
    RUN_SECONDS,
    Finished,
    clean_environment,
    is_alive,
    join_ranks,
    run_tiny,
    start_forked,
    tiny_manifest,
    write_manifest,
)

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(3 * RUN_SECONDS)]

UNEVEN = {
    "lengths": "lognormal:mean=4,sigma=0.6,cap=8",
    "prompt_lengths": "lognormal:mean=5,sigma=0.4,cap=8",
    "reward": {"kind": "token-below", "threshold": 300},
}
#: wide enough for weights that ZeRO-3 does not keep whole (1e5 elements)
WIDE = {"hidden": 192, "ffn": 600, "heads": 6, "kv_heads": 2, "vocab": 600, "tied_embeddings": False}
PADDED_ROWS = {"vocab": 100}

HYDRA = {"trainable_layers": 1, "reference": "hydra"}
CRITIC = {"critic": {"layers": 1, "hidden": 16, "ffn": 32, "heads": 2}}
CHAT = {**CRITIC, "lora_rank": 3}
OFFLOADED = {"zero_stage": 3, "offload_optimizer": True, "offload_parameters": True}
TWICE = {"optimizer_steps": 2, "ppo_epochs": 2, "rollouts": 8}
RECOMPUTED = {"zero_stage": 3, "recompute": "full"}
#: ranks, and what differs from the tiny run
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "untied in bf16": (1, {"shape": {"tied_embeddings": False, **PADDED_ROWS}, "measure": {"precision": "bf16"}}),
    "steps and epochs, recomputed": (1, {"layout": {**RECOMPUTED, "zero_stage": 1}, "workload": TWICE}),
    "hydra": (1, {"shape": PADDED_ROWS, "workload": HYDRA}),
    "offloaded": (1, {"shape": PADDED_ROWS, "layout": OFFLOADED}),
    "critic": (1, {"workload": CRITIC, "layout": {"recompute": "full"}}),
    "groups under ZeRO-3, uneven": (
        1,
        {
            "shape": {**WIDE, "architecture": "qwen3", "head_width": 40},
            "layout": {"zero_stage": 3, "gather_for_generation": True},
            "workload": {**UNEVEN, "algorithm": "grpo:kl_coefficient=0.01", "group": 2},
            "measure": {"precision": "bf16"},
        },
    ),
    "ZeRO-1": (2, {"layout": {"zero_stage": 1}, "shape": PADDED_ROWS}),
    "hydra under ZeRO-3": (2, {"layout": {**RECOMPUTED, "gather_for_generation": True}, "workload": HYDRA}),
    "adapters and critic under ZeRO-3": (2, {"layout": RECOMPUTED, "workload": {**CHAT, "optimizer_steps": 2}}),
}
IN_EVERY_ROUND = [case for case in CASES if case != "groups under ZeRO-3, uneven"]
QUICK = ("untied in bf16", "hydra under ZeRO-3")
LEARNING = {"optimizer": {"learning_rate": 1e-2, "epsilon": 1e-3}}


def manifest_of(case: str) -> Manifest:
    ranks, changes = CASES[case]
    return tiny_manifest(ranks, **{**changes, "workload": {**LEARNING, **changes.get("workload", {})}})


def assert_done(run: Finished, manifest: Manifest) -> None:
    """Every rank ended well, wrote valid events, and counted what the manifest asks and the shape has."""
    assert run.exit_codes == [0] * manifest.layout.ranks, run.errors
    body = manifest.model_dump(mode="json", by_alias=True)
    total, trained = parameters_of(manifest.size, manifest.workload)
    wanted = expected_counts(body["workload"], body["work"])
    wanted.update(total_parameters=total, trainable_parameters=trained)
    iterations = manifest.measure.warmup + manifest.measure.iterations
    for rank in range(manifest.layout.ranks):
        events = run.events(rank)
        assert not [problem for event in events if (problem := wrong_field(event, FIELDS["rank"][event["kind"]]))]
        counts = [event["counts"] for event in run.events(rank, "iteration")]
        assert len(counts) == iterations and all(wanted.items() <= each.items() for each in counts), counts
        assert all((each["padded_tokens"] > 0) == (manifest.work.lengths is not None) for each in counts)
        assert (events[-1]["kind"], events[-1]["status"], events[-1]["iterations"]) == ("end", "ok", iterations)


def statistics(run: Finished, name: str = "loss") -> list[float]:
    return [event["stats"][name] for event in run.events(kind="iteration")]


@pytest.mark.parametrize("case", cases_of(CASES, IN_EVERY_ROUND, QUICK))
def test_ranks_do_the_manifests_work_and_train_the_parameters_that_the_theory_counts(tmp_path, case):
    manifest = manifest_of(case)
    run = run_tiny(tmp_path, manifest)
    assert_done(run, manifest)
    # Before the first optimizer step the reference is the policy, however it was built and whatever lies beside it.
    first, *_, last = statistics(run, "kl")
    assert first == pytest.approx(0.0, abs=1e-4 if manifest.measure.precision == "bf16" else 1e-5) and last != 0.0
    facts, ranks = run.events(kind="environment")[0]["facts"], manifest.layout.ranks
    assert facts["packages"].items() >= manifest.stack.items()
    assert facts["ceilings"]["matmul_flops"] > 0 and facts["resident_baseline_bytes"] > 0
    assert all(event["noise"]["thread_cpu_seconds"] > 0 for event in run.events(kind="iteration"))

    network = facts["network"]
    assert network is None if ranks == 1 else {one["scope"] for one in network["measurements"]} == {"within_node"}
    assert run.events(kind="memory")[0]["phase"] == "setup"
    if ranks > 1:
        assert run.events(0, "iteration")[-1]["stats"] == run.events(1, "iteration")[-1]["stats"]
        assert statistics(run, "gradient_norm")[0] > 0
    if manifest.workload.critic:
        assert any("no hybrid engine" in note for note in facts["notes"])
        assert statistics(run, "value_loss")[0] != statistics(run, "value_loss")[-1]
        parts = zip(statistics(run, "policy_loss"), statistics(run, "value_loss"), strict=True)
        assert statistics(run) == pytest.approx([policy + value for policy, value in parts], abs=1e-6)


@pytest.mark.parametrize(
    ("number", "failure"),
    [(signal.SIGKILL, "rank_lost"), pytest.param(signal.SIGSTOP, "nccl_timeout", marks=pytest.mark.thorough)],
)
def test_the_rank_beside_a_killed_or_stopped_one_says_so_and_keeps_its_iterations(tmp_path, number, failure):
    """It waits for a stopped one as long as a run may be silent; tests/faults stops ranks in every round of faults."""
    manifest = tiny_manifest(2, layout={"zero_stage": 1}, measure={"iterations": 100_000}, silence_seconds=30)
    ranks = start_forked(["suite.worker", str(write_manifest(manifest, tmp_path))], 2, tmp_path)
    told = tmp_path / "events" / "rank-1.jsonl"
    wait_until(lambda: told.exists() and '"kind":"iteration"' in told.read_text())
    os.kill(ranks[1].pid, number)
    ranks[0].join(RUN_SECONDS)
    ranks[1].kill()
    run = join_ranks(ranks, tmp_path)
    assert run.exit_codes == [1, -signal.SIGKILL]
    failed, end = run.events(0)[-2:]
    assert (failed["kind"], failed["failure"]) == ("failure", failure) and failed["evidence"]
    assert end["iterations"] == len(run.events(0, "iteration")) > 0
    assert run.events(1, "iteration")


def test_a_rank_does_not_outlive_its_launcher_and_shows_its_stacks(tmp_path):
    manifest = tiny_manifest(measure={"iterations": 100_000})
    path = write_manifest(manifest, tmp_path)
    errors, told = tmp_path / "errors", tmp_path / "events" / "rank-0.jsonl"
    code = "import subprocess, sys, time; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); time.sleep(999)"
    launcher = subprocess.Popen(
        [sys.executable, "-c", code, sys.executable, "-m", "suite.worker", str(path)],
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=errors.open("w"),
        text=True,
    )
    rank = int(launcher.stdout.readline())
    wait_until(lambda: told.exists() and '"kind":"iteration"' in told.read_text(), told=errors.read_text)
    os.kill(rank, signal.SIGUSR1)
    wait_until(lambda: "run_iteration" in errors.read_text())
    launcher.kill()
    launcher.communicate()
    wait_until(lambda: not is_alive(rank))
