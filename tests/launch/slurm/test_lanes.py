"""Jobs wait for each other, so that runs do not measure each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from suite.launch.slurm.lanes import Lanes


def handed_over(lanes: Lanes, jobs: list[str], arrays: frozenset[str] = frozenset()) -> list[str | None]:
    found = []
    for job in jobs:
        found.append(lanes.dependency(job in arrays))
        lanes.take(job, job in arrays)
    return found


def test_an_array_waits_for_all_and_they_wait_for_it() -> None:
    waits = handed_over(Lanes(2), list("abXcd"), frozenset("X"))
    assert waits == [None, None, "afterany:a:b", "afterany:X", "afterany:X"]


@given(at_once=st.integers(1, 5), ahead=st.integers(0, 7), count=st.integers(1, 20))
def test_no_more_jobs_than_asked_for_can_be_under_way(at_once: int, ahead: int, count: int) -> None:
    """Those ahead may all run; a job of these starts when what it waits for has ended, and the earliest ends last."""
    first = [f"old{index}" for index in range(ahead)]
    lanes = Lanes(at_once, first)
    waits: dict[str, set[str]] = {}
    for index in range(count):
        text = lanes.dependency()
        waits[f"new{index}"] = set() if text is None else set(text.removeprefix("afterany:").split(":"))
        lanes.take(f"new{index}")
    running = set(first)
    done: set[str] = set()
    while len(done) < ahead + count:
        running |= {job for job, before in waits.items() if before <= done and job not in done}
        assert len(running & waits.keys()) <= at_once
        assert not running & waits.keys() or len(running) <= max(at_once, ahead)
        ended = max(running)
        running.remove(ended)
        done.add(ended)
