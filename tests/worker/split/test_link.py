"""What the sides tell each other, and how long one waits for the other."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from suite.worker.events import EventLog
from suite.worker.progress import Progress
from suite.worker.rank import ConfigError, RankIdentity
from suite.worker.split import link as link_module
from suite.worker.split.generation import generation_manifest
from suite.worker.split.link import Link
from suite.worker.split.sides import find_side
from tests.worker.tiny import tiny_manifest

SPLIT = {"placement": "split", "generation_ranks": 1}
NAMES = ("training", "generation")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "beat_seconds", lambda silence: silence / 5)


def pair(silence_seconds: float) -> tuple[Link, Link]:
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, timeout=timedelta(seconds=5))
    return (
        Link(store, None, 1, NAMES, silence_seconds),
        Link(store, None, 1, (NAMES[1], NAMES[0]), silence_seconds),
    )


def test_the_last_ranks_generate_and_count_from_zero_on_their_side() -> None:
    sides = [
        find_side({"placement": "split", "generation_ranks": 2}, RankIdentity(rank, 5, rank, 5)) for rank in (2, 3, 4)
    ]
    assert [(side.name, side.identity.rank, side.identity.world_size) for side in sides if side] == [
        ("training", 2, 3),
        ("generation", 0, 2),
        ("generation", 1, 2),
    ]
    assert [side.identity.local_rank for side in sides if side] == [2, 3, 4], "each keeps its own device"
    assert find_side({}, RankIdentity(0, 2, 0, 2)) is None


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        (RankIdentity(0, 1, 0, 1), "both sides need one"),
        (RankIdentity(0, 4, 0, 2), "one node"),
    ],
)
def test_ranks_that_cannot_be_two_sides_are_refused(identity: RankIdentity, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        find_side(SPLIT, identity)


def test_the_generation_side_builds_a_policy_alone_whatever_trains() -> None:
    manifest = tiny_manifest(
        3,
        layout={**SPLIT, "data": 2, "zero_stage": 3, "recompute": "full"},
        workload={"reference": "hydra", "trainable_layers": 1},
    ).model_dump(mode="json", by_alias=True)
    own = generation_manifest(manifest)
    assert own["generates_only"] is True
    assert (own["layout"]["data"], own["layout"]["zero_stage"], own["layout"]["recompute"]) == (1, 0, "none")
    assert (own["work"]["replica_rollouts"], manifest["work"]["replica_rollouts"]) == (12, 6)
    assert own["workload"]["reference"] == "full"
    assert manifest["layout"]["zero_stage"] == 3


def test_a_word_comes_with_its_facts(quick: None) -> None:
    training, generation = pair(5)
    generation.tell("batch 0 of rank 0", updates=3)
    assert training.hear("batch 0 of rank 0", Progress()) == {"updates": 3}


def test_a_side_that_works_is_waited_for_longer_than_a_run_may_be_silent(quick: None, tmp_path: Path) -> None:
    training, generation = pair(0.5)
    model = torch.nn.Linear(1, 1)
    generation.watch(model)
    log = EventLog(str(tmp_path), 0, mirror=False)
    progress = Progress(log=log, beat_seconds=0.1)

    def work() -> None:
        for _ in range(24):
            time.sleep(0.05)
            model(torch.zeros(1))
        generation.tell("done")

    worker = threading.Thread(target=work)
    worker.start()
    began = time.monotonic()
    training.hear("done", progress)
    worker.join()
    log.close()
    assert time.monotonic() - began > 1, "twice as long as a silent side is waited for"
    assert "heartbeat" in (tmp_path / "events" / "rank-0.jsonl").read_text(), "the driver hears that work goes on"


def test_a_side_that_shows_no_sign_of_work_is_given_up_by_name(quick: None) -> None:
    training, _ = pair(0.5)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"training side timed out after 0\.5 s without a sign of the generation"):
        training.hear("batch 0 of rank 0", Progress())
    assert 0.4 < time.monotonic() - began < 3
