"""The event stream of a rank, and its heartbeats: written by work that goes on, seldom, and by nothing else."""

import os
from itertools import pairwise
from pathlib import Path

import pytest

from suite.worker import events as events_module
from suite.worker.events import EventLog, Progress, beat_seconds
from tests.waiting import wait_until
from tests.worker.clock import Clock
from tests.worker.written import events_in


def test_events_are_numbered_and_readable_before_the_file_is_closed(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path), 3, mirror=False)
    log.emit("phase", phase="score", seconds=0.5)
    log.emit("end", status="ok")
    events = events_in(tmp_path, rank=3)
    log.close()
    assert [(event["kind"], event["rank"], event["seq"]) for event in events] == [("phase", 3, 0), ("end", 3, 1)]
    assert events[0]["seconds"] == 0.5
    assert events[0]["time"] <= events[1]["time"]


def test_what_is_not_a_json_number_is_never_written(tmp_path: Path) -> None:
    log = EventLog(str(tmp_path), 0, mirror=False)
    with pytest.raises(ValueError, match="JSON"):
        log.emit("phase", seconds=float("nan"))
    log.close()
    assert (tmp_path / "events" / "rank-0.jsonl").read_text() == ""


def test_a_disk_that_fails_at_sync_is_told_at_the_next_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    log = EventLog(str(tmp_path), 0, mirror=False)
    monkeypatch.setattr(os, "fsync", full)
    log.close()
    with pytest.raises(OSError, match="No space left"):
        log.emit("end", status="ok")


def test_requests_are_gathered_and_the_last_events_are_on_disk_when_it_closes(tmp_path, monkeypatch):
    """The time between two flushes is as good as endless here, and then nothing."""
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.fstat(descriptor).st_size))
    monkeypatch.setattr("suite.worker.events._SECONDS_BETWEEN_FLUSHES", 1e6)
    log = EventLog(str(tmp_path), 0, mirror=False)
    for number in range(100):
        log.emit("phase", number=number)
        log.sync()
    log.close()
    assert flushed == [Path(log.path).stat().st_size]
    monkeypatch.setattr("suite.worker.events._SECONDS_BETWEEN_FLUSHES", 0)
    log = EventLog(str(tmp_path), 1, mirror=False)
    log.emit("phase")
    log.sync()
    wait_until(lambda: flushed[1:])
    log.close()
    assert flushed[1] == Path(log.path).stat().st_size


BEAT_SECONDS = 10.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, events_module)


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
