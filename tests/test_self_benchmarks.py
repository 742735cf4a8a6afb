"""The suite's benchmarks of itself: verdicts, intervals, and what its rank program measures."""

from __future__ import annotations

import time
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
from tests.worker.tiny import tiny_manifest

SHORT, LONG = 0.01, 0.3  # seconds


class TestVerdict:
    def test_an_interval_beside_a_limit_tells_and_one_around_it_does_not(self) -> None:
        assert at_most(Interval(0.5, 0.2, 0.9), 1) == "met"
        assert at_most(Interval(1.5, 1.1, 1.9), 1) == "not met"
        assert at_most(Interval(0.5, -0.2, 1.2), 1) == "cannot tell"

    def test_a_ratio_has_a_limit_on_either_side(self) -> None:
        assert within(Interval(1.0, 0.995, 1.005), 0.99, 1.01) == "met"
        assert within(Interval(0.9, 0.85, 0.95), 0.99, 1.01) == "not met"
        assert within(Interval(1.0, 0.7, 1.3), 0.99, 1.01) == "cannot tell"  # containing 1 is not enough


class TestIntervals:
    def test_a_median_lies_between_order_statistics(self) -> None:
        assert median([float(value) for value in range(21)]) == (10, 5, 15)  # binomial tables: the 6th and the 16th
        assert median([3.0, 1.0, 2.0, 5.0, 4.0]) == (3, 1, 5)

    def test_one_preempted_iteration_moves_no_trimmed_mean(self) -> None:
        values = [1.0 + index / 1000 for index in range(20)]
        calm, disturbed = trimmed_mean(values), trimmed_mean([*values[:-1], 50.0])
        assert calm == disturbed
        assert calm.low < calm.value < calm.high

    def test_more_values_narrow_the_interval(self) -> None:
        few, many = (trimmed_mean([1.0, 1.1, 0.9, 1.2, 0.8] * times) for times in (1, 20))
        assert many.high - many.low < (few.high - few.low) / 3


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


class TestMeter:
    @pytest.fixture
    def meter(self, monkeypatch: pytest.MonkeyPatch) -> Meter:
        for name in ("synchronise", "barrier"):
            monkeypatch.setattr(recorder_module, name, getattr(recorder_module, name))  # put back behind the test
            monkeypatch.setattr(loop_worker, name, lambda world: time.sleep(LONG))
        return Meter(Slow())

    def test_only_the_recorders_own_time_is_counted(self, meter: Meter) -> None:
        """Neither the work of a phase nor the wait at its end."""
        with meter.phase("score"):
            time.sleep(LONG)
        assert 2 * SHORT <= meter.take() < LONG
        assert meter.take() == 0.0

    def test_every_call_is_counted(self, meter: Meter) -> None:
        meter.finish({}, {})
        assert SHORT <= meter.take() < LONG


class Slow(NullRecorder):
    """Takes its time before and behind each phase, where it also waits, and at the end of an iteration."""

    world = World(0, 1, 0, 1, torch.device("cpu"))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        time.sleep(SHORT)
        yield
        recorder_module.synchronise(self.world)
        time.sleep(SHORT)

    def finish(self, *arguments: object, **optional: object) -> None:
        time.sleep(SHORT)


@pytest.mark.ranks
def test_iterations_take_turns_and_the_recorder_takes_little_of_them() -> None:
    told = run_ranks("overhead", tiny_manifest(), 5)
    assert {name: len(seconds) for name, seconds in told["seconds"].items()} == {"on": 5, "edges": 5}
    assert all(0 < own < whole for own, whole in zip(told["direct"], told["seconds"]["on"], strict=True))


def test_a_rank_that_fails_tells_its_last_lines() -> None:
    with pytest.raises(RuntimeError, match=r"No module named .?benchmarks\.no_such_script"):
        run_script("benchmarks.no_such_script", tiny_manifest())
