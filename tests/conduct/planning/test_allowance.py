"""Iterations and limits by what a run should take: enough of both, and not more."""

from __future__ import annotations

import pytest

from suite.conduct.planning.allowance import (
    LONGEST_LIMIT,
    MARGIN,
    START_SECONDS,
    Pace,
    counted_iterations,
    limits_for,
    run_seconds,
)
from suite.conduct.planning.plan import make_joint_plan
from suite.spec.catalogue import find_size, find_workload
from suite.spec.manifest import Limits, Measure
from tests.conduct.requests import STACKS, request

OPEN = ("iterations", "run_seconds", "silence_seconds")
CUDA = Measure(device="cuda", precision="bf16")
A100 = "A100-SXM-80GB"


@pytest.mark.parametrize(
    ("seconds", "iterations"),
    [
        *(([0.1], 50), ([1.0], 20), ([2.5], 8), ([100.0], 8), ([200.0], 7), ([549.0], 3), ([5000.0], 3)),
        ([1.0, 549.0], 3),  # the slowest of equal work sets the number for all
        ([], 8),
    ],
)
def test_fast_iterations_are_more_and_slow_ones_fewer(seconds: list[float], iterations: int) -> None:
    assert counted_iterations(CUDA, OPEN, [Pace(each, each / 2) for each in seconds]) == iterations


def test_what_was_asked_for_or_cannot_be_expected_stands() -> None:
    slow = Pace(549.0, 400.0)
    assert counted_iterations(CUDA, ("run_seconds",), [slow]) == 8
    assert limits_for(CUDA, Limits(), OPEN, None) == Limits()
    asked = Limits(run_seconds=61, silence_seconds=7)
    assert limits_for(CUDA, asked, ("iterations",), slow) == asked


@pytest.mark.parametrize("seconds", [0.5, 8.0, 47.0, 549.0, 2066.0, 90_000.0])
def test_limits_leave_twice_the_time_and_room_to_start_and_are_no_more_than_a_day(seconds: float) -> None:
    limits = limits_for(CUDA, Limits(), OPEN, Pace(seconds, 0.9 * seconds))
    enough = START_SECONDS + MARGIN * run_seconds(CUDA, seconds)
    assert min(enough, LONGEST_LIMIT) <= limits.run_seconds <= LONGEST_LIMIT == 86_400
    assert limits.run_seconds % 60 == 0
    assert 600 <= limits.silence_seconds <= limits.run_seconds
    assert limits.silence_seconds >= min(MARGIN * 0.9 * seconds, LONGEST_LIMIT)


def test_rows_of_equal_work_count_the_same_iterations_and_have_limits_of_their_own() -> None:
    asked = request(
        sizes=(find_size("66B"),),
        ranks=(32,),
        nodes=4,
        workload=find_workload("trlx-ds-chat"),
        measure=CUDA,
        device_memory_bytes=80 << 30,
        device_name=A100,
        left_open=OPEN,
        repeats=1,
    )
    slow, fast = make_joint_plan((asked,), STACKS).manifests
    assert slow.measure == fast.measure and slow.measure.iterations < 8
    assert slow.limits.run_seconds > fast.limits.run_seconds


def test_what_a_plan_is_made_by_is_no_part_of_its_identity() -> None:
    plain = request()
    known = plain.model_copy(update={"device_name": A100, "left_open": OPEN, "preset": "ladder"})
    assert make_joint_plan((plain,), STACKS).id == make_joint_plan((known,), STACKS).id
    assert make_joint_plan((plain,), STACKS).manifests == make_joint_plan((known,), STACKS).manifests, "a CPU's"
