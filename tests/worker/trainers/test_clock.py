"""The clock of foreign iterations: phases in pieces, phases without the others, parts within parts."""

from pathlib import Path
from typing import Any

import pytest
import torch

from suite.bundle.event_fields import FIELDS, wrong_field
from suite.worker import recorder as recorder_module
from suite.worker.events import EventLog, Progress
from suite.worker.memory import MemoryProbe
from suite.worker.trainers import clock as clock_module
from suite.worker.trainers.clock import PhaseClock
from suite.worker.world import World
from tests.worker.clock import Clock
from tests.worker.written import events_in

_COUNTED = "samples prompt_tokens response_tokens padded_tokens trained_tokens optimizer_steps"
COUNTS = dict.fromkeys((*_COUNTED.split(), "trainable_parameters", "total_parameters"), 1)
STATS = {"loss": 0.5, "kl": None}


class Stand:
    """A clock under test with what it writes, whom it waits for, and its own time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.progress, self.met = folder, Progress(), []
        self.ticks = Clock(monkeypatch, clock_module, recorder_module, step=1.0)
        world = World(0, 2, 0, 2, torch.device("cpu"))
        monkeypatch.setattr(recorder_module, "barrier", self.met.append)
        log = EventLog(str(folder), 0, mirror=False)
        self.clock = PhaseClock(world, log, MemoryProbe(world.device, 0), None, self.progress)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return events_in(self.folder, kind)


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    return Stand(tmp_path, monkeypatch)


def test_a_phase_in_pieces_is_one_event_with_their_sum(stand: Stand) -> None:
    stand.clock.begin(0)
    with stand.clock.phase("score", more=True):
        pass
    assert stand.events("phase") == []
    with stand.clock.phase("reference"):
        pass
    with stand.clock.phase("score"):
        stand.ticks.now += 10
    stand.clock.stop()
    first, second = stand.events("phase")
    assert (first["phase"], first["seconds"], first["wait_seconds"]) == ("reference", 1.0, 1.0)
    assert (second["phase"], second["seconds"], second["wait_seconds"]) == ("score", 12.0, 2.0)


def test_memory_of_a_phase_in_pieces_is_that_of_its_larger_piece(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    peaks = iter([7, 5, 9])
    known = {"peak_reserved_bytes": None, "peak_device_bytes": None, "allocation_retries": None}
    monkeypatch.setattr(
        MemoryProbe, "peaks", lambda self: {"peak_allocated_bytes": next(peaks), "peak_resident_bytes": 1, **known}
    )
    stand.clock.begin(0)
    for more in (True, True, False):
        with stand.clock.phase("train", more=more):
            pass
    (event,) = stand.events("memory")
    assert event["peak_allocated_bytes"] == 9
    assert event["peak_reserved_bytes"] is None


def test_ranks_meet_around_a_piece_but_not_around_one_of_a_rank_alone_and_the_progress_names_it(stand: Stand) -> None:
    stand.clock.begin(3)
    stand.met.clear()
    assert (stand.progress.iteration, stand.progress.phase) == (3, "other")
    with stand.clock.phase("generate"):
        assert stand.progress.phase == "generate"
    assert (len(stand.met), stand.progress.phase) == (2, "other")
    with stand.clock.phase("reward", alone=True):
        pass
    assert len(stand.met) == 2


def test_a_failure_inside_a_phase_leaves_its_name(stand: Stand) -> None:
    stand.clock.begin(0)
    with pytest.raises(MemoryError), stand.clock.phase("train"):
        raise MemoryError
    assert stand.progress.phase == "train"
    assert stand.events("phase") == []


def test_parts_are_summed_by_name_an_inner_one_counts_for_itself_and_none_for_the_next_iteration(stand: Stand) -> None:
    for iteration in (0, 1):
        stand.clock.begin(iteration)
        with stand.clock.phase("train"):
            for _ in range(0 if iteration else 2):
                with stand.clock.detail("train/forward"):
                    pass
                with stand.clock.detail("train/backward"), stand.clock.detail("train/optimizer"):
                    pass
        stand.clock.stop()
        stand.clock.finish(COUNTS, STATS)
    first, second = stand.events("iteration")
    assert first["details"] == {"train/forward": 2.0, "train/optimizer": 2.0, "train/backward": 4.0}
    assert "details" not in second
    events = [event for kind in ("phase", "memory", "iteration") for event in stand.events(kind)]
    assert [wrong_field(event, FIELDS["rank"][event["kind"]]) for event in events] == [None] * 6
