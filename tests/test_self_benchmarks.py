"""The suite's benchmarks of itself: verdicts, intervals, and what its rank program measures."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from benchmarks import loop_worker
from benchmarks.__main__ import page
from benchmarks.loop_worker import Meter
from benchmarks.ranks import run_ranks, run_script
from benchmarks.verdict import Interval, Row, at_most, median, trimmed_mean, within
from suite.worker import recorder as recorder_module
from suite.worker.recorder import NullRecorder
from suite.worker.world import World
from tests.worker.clock import Clock
from tests.worker.tiny import tiny_manifest


def test_an_interval_beside_a_limit_tells_and_one_around_it_does_not() -> None:
    assert at_most(Interval(0.5, 0.2, 0.9), 1) == "met"
    assert at_most(Interval(1.5, 1.1, 1.9), 1) == "not met"
    assert at_most(Interval(0.5, -0.2, 1.2), 1) == "cannot tell"
    assert within(Interval(1.0, 0.995, 1.005), 0.99, 1.01) == "met"
    assert within(Interval(0.9, 0.85, 0.95), 0.99, 1.01) == "not met"
    assert within(Interval(1.0, 0.7, 1.3), 0.99, 1.01) == "cannot tell"  # containing 1 is not enough


def test_a_median_lies_between_order_statistics() -> None:
    assert median([float(value) for value in range(21)]) == (10, 5, 15)  # binomial tables: the 6th and the 16th


def test_one_preempted_iteration_moves_no_trimmed_mean() -> None:
    values = [1.0 + index / 1000 for index in range(20)]
    calm, disturbed = trimmed_mean(values), trimmed_mean([*values[:-1], 50.0])
    assert calm == disturbed
    assert calm.low < calm.value < calm.high


def test_the_page_names_every_limit_that_is_not_met() -> None:
    rows = [
        Row("a", "1 s", "2 s", "met"),
        Row("b", "3 s", "2 s", "not met"),
        Row("c", "2 s", "2 s", "cannot tell"),
        Row("d", "4 s"),
    ]
    text = page(rows, {"cpu": {"model": "some", "cores": None, "threads": 2}}, 0.1, 500)
    assert "**1 of 3 limits are met.**\n\nNot met: b.\n\nCannot tell: c.\n" in text
    assert "| d | 4 s | none | no limit |" in text
    assert "some, 2 cores" in text


class Slow(NullRecorder):
    """Takes a second before and two behind each phase, where it also waits, and four at the end of an iteration."""

    world = World(0, 1, 0, 1, torch.device("cpu"))

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._clock.now += 1
        yield
        recorder_module.synchronise(self.world)
        self._clock.now += 2

    def finish(self, *arguments: object, **optional: object) -> None:
        self._clock.now += 4


def test_the_meter_counts_every_call_of_the_recorder_but_neither_a_phases_work_nor_a_wait(monkeypatch):
    clock = Clock(monkeypatch, loop_worker)

    def wait(world: World) -> None:
        clock.now += 50

    for name in ("synchronise", "barrier"):
        monkeypatch.setattr(recorder_module, name, getattr(recorder_module, name))  # put back behind the test
        monkeypatch.setattr(loop_worker, name, wait)
    meter = Meter(Slow(clock))
    with meter.phase("score"):
        clock.now += 100
    assert (meter.take(), meter.take()) == (1 + 2, 0)
    meter.finish({}, {})
    assert meter.take() == 4


@pytest.mark.ranks
def test_a_real_rank_tells_the_seconds_of_every_turn_and_of_the_recorder() -> None:
    told = run_ranks("overhead", tiny_manifest(), 3)
    assert {name: len(seconds) for name, seconds in told["seconds"].items()} == {"on": 3, "edges": 3}
    assert len(told["direct"]) == 3 and min(told["direct"]) > 0


def test_a_rank_that_fails_tells_its_last_lines() -> None:
    with pytest.raises(RuntimeError, match=r"No module named .?benchmarks\.no_such_script"):
        run_script("benchmarks.no_such_script", tiny_manifest())
