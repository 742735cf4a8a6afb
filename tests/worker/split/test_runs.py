"""Both sides for real on two ranks: the same work as colocated, weights that arrive, and a side that dies."""

import json
import os
import signal
import sys
from importlib import metadata
from typing import Any

import pytest

from suite.backends.registry import find_backend
from suite.bundle.verify import verify
from suite.launch import supervise
from suite.spec.manifest import Manifest
from tests.worker.tiny import tiny_manifest
from tests.worker.trainers.runs import run_of, whole_run_of

pytestmark = [pytest.mark.ranks, pytest.mark.ci, pytest.mark.timeout(400)]

SPLIT = {"data": 1, "placement": "split", "generation_ranks": 1}


def split_manifest(backend: str, **fields: Any) -> Manifest:
    stack = {package: metadata.version(package) for package in find_backend(backend).packages}
    return tiny_manifest(2, layout=SPLIT, backend=backend, stack=stack, **fields)


def test_two_sides_do_the_work_of_two_colocated_ranks_one_step_off_policy(tmp_path):
    workload = {"ppo_epochs": 2, "reward": {"kind": "token-below", "threshold": 64}}
    manifest = split_manifest("deepspeed", workload=workload)
    run = whole_run_of(manifest, tmp_path, sys.executable)
    assert tiny_manifest(2, workload=workload).work_hash == manifest.work_hash

    trained, generated = run.events("iteration"), run.events("iteration", rank=1)
    assert [event["staleness"] for event in trained] == [0, 1, 1]
    assert [event["iteration"] for event in generated] == [0, 1, 2]
    sums = [event["stats"]["weights_sum"] for event in trained]
    assert [event["stats"]["weights_sum"] for event in generated] == sums, "what was published is what is held"
    assert len(set(sums)) == 3, "every iteration publishes weights that training has changed"
    assert [event["phase"] for event in run.events("phase", rank=1)] == ["sync", "generate"] * 3

    overlap, phases = run.record.overlap, run.record.phases
    assert overlap.exposed_generate_seconds > 0 and overlap.generation_busy_seconds > 0
    assert phases.generate.seconds == pytest.approx(overlap.exposed_generate_seconds)
    assert phases.generate.tokens_per_second is None
    training, generation = overlap.sides["training"], overlap.sides["generation"]
    assert training.busy_seconds > 0 and generation.busy_seconds > 0
    assert set(generation.phases) == {"sync", "generate"}
    assert training.memory.peak_resident_bytes and generation.memory.peak_resident_bytes
    assert any("the fill" in note for note in run.facts["notes"])


def test_a_killed_generation_rank_ends_the_run_as_a_lost_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(supervise, "oom_kills", lambda: None)  # others on this machine may run out of memory meanwhile
    manifest = split_manifest("megatron", measure={"iterations": 100_000})
    victims: list[int] = []

    def kill(event: dict[str, Any]) -> None:
        if event["kind"] == "iteration" and not victims:
            told = (tmp_path / manifest.run.id / "events" / "rank-1.jsonl").read_text().splitlines()
            victims.append(json.loads(told[0])["pid"])
            os.kill(victims[0], signal.SIGKILL)

    run = run_of(manifest, tmp_path, sys.executable, kill)
    record = run.record
    assert (record.status, record.failure.kind) == ("failed", "rank_lost")
    assert record.failure.evidence[0] == "rank 1 ended by SIGKILL"
    assert verify(run.bundle).status == "equal"
    assert run.events("iteration")[0]["counts"]["samples"] == 8, "megatron's two sides had begun"
