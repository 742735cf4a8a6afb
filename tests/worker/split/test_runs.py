"""Both sides for real on two ranks: the same work as colocated, weights that arrive, and a side that dies."""

import os
import signal
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from suite.backends.registry import find_backend
from suite.bundle.record import Record
from suite.bundle.store import Bundle
from suite.bundle.verify import verify
from suite.conduct.running.execute import execute
from suite.launch.local import LocalLauncher
from suite.spec.manifest import Manifest
from suite.worker.asked import expected_counts
from tests.bundle.recorded import of_kind
from tests.bundle.tampering import events_of
from tests.worker.tiny import tiny_manifest

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(400)]

SPLIT = {"data": 1, "placement": "split", "generation_ranks": 1}
Event = dict[str, Any]


def split_manifest(backend: str, **fields: Any) -> Manifest:
    stack = {package: metadata.version(package) for package in find_backend(backend).packages}
    return tiny_manifest(2, layout=SPLIT, backend=backend, stack=stack, **fields)


def run(manifest: Manifest, root: Path, on_event: Any = lambda event: None) -> tuple[Bundle, Record]:
    record = execute(manifest, root, LocalLauncher(), sys.executable, on_event)
    return Bundle(root / manifest.run.id), record


def told(bundle: Bundle, rank: int, kind: str) -> list[Event]:
    return of_kind(events_of(bundle.path, rank), kind)


def test_two_sides_do_the_work_of_two_colocated_ranks_one_step_off_policy(tmp_path: Path) -> None:
    workload = {"ppo_epochs": 2, "reward": {"kind": "token-below", "threshold": 64}}
    manifest = split_manifest("deepspeed", workload=workload)
    bundle, record = run(manifest, tmp_path)
    assert record.status == "ok", record.failure
    assert verify(bundle).status == "equal"
    colocated = tiny_manifest(2, workload=workload)
    assert colocated.work_hash == manifest.work_hash
    plain = colocated.model_dump(mode="json")
    assert record.counts is not None
    assert expected_counts(plain["workload"], plain["work"]).items() <= record.counts.model_dump().items()

    trained, generated = told(bundle, 0, "iteration"), told(bundle, 1, "iteration")
    assert [event["staleness"] for event in trained] == [0, 1, 1]
    assert [event["iteration"] for event in generated] == [0, 1, 2]
    sums = [event["stats"]["weights_sum"] for event in trained]
    assert [event["stats"]["weights_sum"] for event in generated] == sums, (
        "the generation rank holds what was published"
    )
    assert len(set(sums)) == 3, "every iteration publishes weights that training has changed"
    assert [event["phase"] for event in told(bundle, 1, "phase")] == ["sync", "generate"] * 3

    overlap = record.overlap
    assert overlap is not None
    assert overlap.exposed_generate_seconds > 0 and overlap.generation_busy_seconds > 0
    assert record.phases.generate.seconds == pytest.approx(overlap.exposed_generate_seconds)
    assert record.phases.generate.tokens_per_second is None
    training, generation = overlap.sides["training"], overlap.sides["generation"]
    assert training.busy_seconds > 0 and generation.busy_seconds > 0
    assert set(generation.phases) == {"sync", "generate"}
    assert training.memory.peak_resident_bytes and generation.memory.peak_resident_bytes
    assert any("the fill" in note for note in record.environment.worker["notes"])


def test_a_killed_generation_rank_ends_the_run_as_a_lost_rank(tmp_path: Path) -> None:
    manifest = split_manifest("megatron", measure={"iterations": 100_000})
    victims: list[int] = []

    def kill(event: Event) -> None:
        if event["kind"] == "iteration" and not victims:
            line = (tmp_path / manifest.run.id / "events" / "rank-1.jsonl").read_text().splitlines()[0]
            victims.append(int(line.split('"pid":')[1].split(",")[0]))
            os.kill(victims[0], signal.SIGKILL)

    bundle, record = run(manifest, tmp_path, kill)
    assert (record.status, record.failure.kind) == ("failed", "rank_lost")
    assert record.failure.evidence[0] == "rank 1 ended by SIGKILL"
    assert verify(bundle).status == "equal"
    trained = told(bundle, 0, "iteration")
    assert trained[0]["counts"]["samples"] == 8, "megatron's two sides had begun"
