"""The simulator of one iteration: the closed forms where they are exact, and what it says where they are not."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suite.planner.simulate.explain import trace_of
from suite.planner.simulate.generating import Pace, generate
from suite.planner.simulate.iteration import MOST_TASKS, SLOW, UNEVEN, Setting, TooLarge, simulate
from suite.planner.simulate.stragglers import Stragglers, measured
from suite.spec.base import UsageError


def setting(stages=1, chunks=1, replicas=1, micros=8, steps=1, **changes):
    usual = {"forward": 1.0, "backward": 2.0, "score": 1.0, "passes": 1.0}
    return Setting(
        stages=stages, chunks=chunks, steps=steps, weights=np.ones((replicas, micros * steps)), **usual | changes
    )


@given(
    stages=st.integers(1, 6),
    groups=st.integers(1, 4),
    chunks=st.integers(1, 4),
    forward=st.floats(0.1, 3),
    backward=st.floats(0.1, 3),
)
@settings(max_examples=30)
def test_pipelines_take_what_the_closed_form_says(stages, groups, chunks, forward, backward):
    """(m + (p - 1) / v)(f + b), Narayanan et al., arXiv 2104.04473, section 2.2."""
    micros, chunks = stages * groups, chunks if stages > 1 else 1
    # the interleaved form is exact where forward and backward passes take alike long in each chunk's turn
    backward = forward if chunks > 1 else backward
    found = simulate(setting(stages, chunks, micros=micros, forward=forward, backward=backward, passes=0.0))
    assert found.seconds == pytest.approx((micros + (stages - 1) / chunks) * (forward + backward))


@given(st.lists(st.floats(1, 200), min_size=1, max_size=40), st.integers(1, 64))
@settings(max_examples=30)
def test_an_engine_takes_at_least_its_longest_sample_and_at_most_them_one_by_one(lengths, places):
    pace = Pace(0.01, 0.001)
    found = generate(lengths, places, pace)
    together = min(places, len(lengths))
    tokens = sum(lengths)
    assert found.seconds >= max(lengths) * pace.step + tokens * pace.sample - 1e-9
    assert found.seconds >= tokens / together * pace.step + tokens * pace.sample - 1e-9
    assert found.seconds <= tokens * (pace.step + pace.sample) + 1e-9


ENGINES = {"lengths": ((100.0,) * 4, (100.0,) * 4), "places": 4, "pace": Pace(0.05, 0.0)}


@pytest.mark.parametrize(("split", "staleness"), [(False, 0), (True, 0)])
def test_phases_one_after_the_other_add_up(split, staleness):
    found = simulate(setting(sync=0.5, host=0.25, optimizer=0.1, split=split, staleness=staleness, **ENGINES))
    assert found.seconds == pytest.approx(5.0 + 8 * 1.0 + 8 * 3.0 + 0.25 + 0.1 + 0.5)
    assert sum(found.causes.values()) == pytest.approx(found.seconds)


@pytest.mark.parametrize("pace", [0.05, 1.0])
def test_of_two_sides_that_work_at_once_the_slower_one_sets_the_period(pace):
    engines = {**ENGINES, "pace": Pace(pace, 0.0)}
    found = simulate(setting(sync=0.5, split=True, staleness=1, **engines))
    assert found.seconds == pytest.approx(max(100 * pace, 8 + 24) + 0.5)
    assert sum(found.causes.values()) == pytest.approx(found.seconds)


def test_what_slow_ranks_and_uneven_lengths_cost_is_told_apart_and_adds_up():
    weights = np.random.default_rng(1).uniform(0.5, 1.5, (4, 8))
    uneven = Setting(stages=2, chunks=1, steps=1, forward=1.0, backward=2.0, score=0.3, passes=2.0, weights=weights)
    slow = Stragglers({"train": np.array([1.0, 1.0, 1.3]), "score": np.array([1.0, 1.1])}, runs=3)
    plain, both = simulate(uneven), simulate(uneven, slow, seed=4)
    assert both.causes[UNEVEN] == pytest.approx(plain.causes[UNEVEN]) and plain.causes[UNEVEN] > 0
    assert both.causes[SLOW] == pytest.approx(both.seconds - plain.seconds) and both.causes[SLOW] > 0
    assert sum(both.causes.values()) == pytest.approx(both.seconds)
    assert simulate(uneven, slow, seed=4).seconds == both.seconds


def test_the_trace_has_a_lane_for_each_stage_and_engine_and_never_two_tasks_at_once_on_one():
    found = simulate(setting(stages=2, replicas=2, micros=4, sync=0.5, **ENGINES))
    spans = [event for event in trace_of(found)["traceEvents"] if event["ph"] == "X"]
    for lane in range(6):
        own = sorted((span["ts"], span["dur"]) for span in spans if span["tid"] == lane)
        assert own and all(at + taken <= after + 1e-2 for (at, taken), (after, _) in pairwise(own))
    assert max(span["ts"] + span["dur"] for span in spans) == pytest.approx(1e6 * found.seconds)


RUNS = Path(__file__).resolve().parents[2] / "docs/results/cpu/runs"


def test_slow_ranks_are_drawn_from_what_real_runs_measured():
    pairs = sorted(path for path in RUNS.iterdir() if "-n2-" in path.name)[:8]
    found = measured(pairs)
    assert found.runs == len(pairs) and set(found.factors) == {"generate", "score", "train"}
    for factors in found.factors.values():
        assert len(factors) > 8 * 2 * 3, "several iterations of both ranks of every run"
        assert np.median(factors) == pytest.approx(1.0, abs=0.05) and np.quantile(factors, 0.9) > 1.0
    plain = setting(stages=1, replicas=4, micros=4, passes=2.0)
    quiet, slow = simulate(plain), simulate(plain, found, seed=1)
    assert slow.seconds > quiet.seconds and slow.causes[SLOW] == pytest.approx(slow.seconds - quiet.seconds)


def test_what_is_too_much_is_told():
    with pytest.raises(TooLarge, match="are more than"):
        simulate(setting(replicas=1, micros=MOST_TASKS))


def test_a_folder_of_no_run_or_of_one_that_failed_tells_nothing_of_slow_ranks(tmp_path):
    with pytest.raises(UsageError, match="no finished runs"):
        measured([tmp_path])
    run = next(path for path in sorted(RUNS.iterdir()) if "-n2-" in path.name)
    copied = shutil.copytree(run, tmp_path / run.name) / "record.json"
    assert measured([tmp_path]).runs == 1
    record = json.loads(copied.read_text())
    failure = {"kind": "rank_lost", "phase": None, "iteration": None, "evidence": ["rank 1 ended by SIGKILL"]}
    copied.write_text(json.dumps({**record, "status": "failed", "failure": failure}))
    with pytest.raises(UsageError, match="no finished runs"):
        measured([tmp_path])
