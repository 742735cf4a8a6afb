"""Heartbeats: written by work that goes on, seldom, and by nothing else."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from suite.worker.events import EventLog
from suite.worker.memory import MemoryProbe
from suite.worker.progress import Progress, beat_seconds
from suite.worker.recorder import NullRecorder, Recorder
from suite.worker.world import World
from tests.worker.tiny import run_tiny, tiny_manifest

BEAT_SECONDS = 0.05


@pytest.fixture
def progress(tmp_path: Path) -> Progress:
    return Progress(log=EventLog(str(tmp_path), 0, mirror=False), beat_seconds=BEAT_SECONDS)


def events_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "events" / "rank-0.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("silence", "seconds"), [(600.0, 30.0), (200.0, 10.0), (20.0, 1.0), (2.0, 1.0), (1e9, 30.0)])
def test_the_time_between_heartbeats_follows_the_limit_of_silence(silence: float, seconds: float) -> None:
    assert beat_seconds(silence) == seconds


def test_work_within_a_beat_of_any_event_writes_none(progress: Progress, tmp_path: Path) -> None:
    ends = time.monotonic() + 5 * BEAT_SECONDS
    while time.monotonic() < ends:
        progress.log.emit("phase")
        progress.beat()
    assert "heartbeat" not in {event["kind"] for event in events_in(tmp_path)}


def test_longer_work_tells_how_far_it_is_once_a_beat(progress: Progress, tmp_path: Path) -> None:
    progress.iteration, progress.phase = 3, "train"
    ends = time.monotonic() + 5.5 * BEAT_SECONDS
    while time.monotonic() < ends:
        progress.beat()
    beats = events_in(tmp_path)
    assert 1 <= len(beats) <= 5
    assert {(beat["kind"], beat["iteration"], beat["phase"]) for beat in beats} == {("heartbeat", 3, "train")}
    assert 0 < beats[0]["calls"] <= progress.calls
    assert all(later["time"] - beat["time"] > 0.9 * BEAT_SECONDS for beat, later in pairwise(beats))


def test_a_rank_that_does_nothing_is_silent(progress: Progress, tmp_path: Path) -> None:
    time.sleep(4 * BEAT_SECONDS)
    assert events_in(tmp_path) == []


def test_without_a_log_work_is_counted_only() -> None:
    progress = Progress(beat_seconds=0.0)
    progress.beat()
    assert progress.calls == 1


def test_a_recorder_beats_at_each_forward_call_of_what_it_watches(progress: Progress, tmp_path: Path) -> None:
    world = World(0, 1, 0, 1, torch.device("cpu"))
    watched, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    Recorder(world, progress.log, MemoryProbe(world.device, 0), None, progress).watch(watched)
    NullRecorder().watch(other)
    for _ in range(3):
        watched(torch.ones(2))
        other(torch.ones(2))
    assert progress.calls == 3


@pytest.mark.ranks
@pytest.mark.timeout(100)
@pytest.mark.parametrize("backend", ["deepspeed", pytest.param("megatron", marks=pytest.mark.thorough)])
def test_a_long_generation_beats_and_short_phases_do_not(tmp_path: Path, backend: str) -> None:
    tokens = 1500
    manifest = tiny_manifest(
        backend=backend,
        shape={"positions": 2048},
        workload={"new_tokens": tokens, "rollouts": 1, "micro_batch": 1},
        measure={"iterations": 1},
        silence_seconds=20,
        stack={},
    )
    run = run_tiny(tmp_path, manifest)
    assert run.exit_codes == [0], run.errors
    beats = [event for event in run.events(kind="heartbeat") if event["phase"] != "setup"]
    assert {(beat["iteration"], beat["phase"]) for beat in beats} >= {(0, "generate"), (1, "generate")}
    longest = {(event["iteration"], event["phase"]): event["seconds"] for event in run.events(kind="phase")}
    assert all(longest[beat["iteration"], beat["phase"]] > beat_seconds(20) for beat in beats)
    assert beats[-1]["calls"] > tokens
