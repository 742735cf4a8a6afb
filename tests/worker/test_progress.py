"""Heartbeats: written by work that goes on, seldom, and by nothing else. Real engines' calls: engines/test_flops.py."""

from itertools import pairwise
from pathlib import Path

import pytest

from suite.worker import events as events_module
from suite.worker import progress as progress_module
from suite.worker.events import EventLog
from suite.worker.progress import Progress, beat_seconds
from tests.worker.clock import Clock
from tests.worker.written import events_in

BEAT_SECONDS = 10.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, events_module, progress_module)


@pytest.fixture
def progress(tmp_path: Path, clock: Clock) -> Progress:
    return Progress(log=EventLog(str(tmp_path), 0, mirror=False), beat_seconds=BEAT_SECONDS)


@pytest.mark.parametrize(("silence", "seconds"), [(600.0, 30.0), (200.0, 10.0), (20.0, 1.0), (2.0, 1.0), (1e9, 30.0)])
def test_the_time_between_heartbeats_follows_the_limit_of_silence(silence: float, seconds: float) -> None:
    assert beat_seconds(silence) == seconds


def test_a_stage_of_the_set_up_is_told_at_once(progress: Progress, tmp_path: Path) -> None:
    progress.tell("Ray's start")
    (told,) = events_in(tmp_path)
    assert (told["kind"], told["phase"], told["iteration"]) == ("heartbeat", "setup", None)
    assert told["doing"] == "Ray's start"


def test_work_within_a_beat_of_any_event_writes_none(progress: Progress, tmp_path: Path, clock: Clock) -> None:
    for _ in range(10):
        progress.log.emit("phase")
        clock.now += BEAT_SECONDS - 1
        progress.beat()
    assert {event["kind"] for event in events_in(tmp_path)} == {"phase"}


def test_longer_work_tells_how_far_it_is_once_a_beat(progress: Progress, tmp_path: Path, clock: Clock) -> None:
    progress.iteration, progress.phase = 3, "train"
    for _ in range(55):
        clock.now += BEAT_SECONDS / 10
        progress.beat()
    beats = events_in(tmp_path)
    assert [(beat["kind"], beat["iteration"], beat["phase"]) for beat in beats] == [("heartbeat", 3, "train")] * 5
    assert [beat["calls"] for beat in beats] == [10, 20, 30, 40, 50]
    assert {later["time"] - beat["time"] for beat, later in pairwise(beats)} == {BEAT_SECONDS}
