"""The event stream of a rank."""

import os
from pathlib import Path

import pytest

from suite.worker.events import EventLog
from tests.waiting import wait_until
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
