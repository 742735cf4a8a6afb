"""Runs that are started together: one works at a time, what befalls one is its own, and nothing is left of any."""

import json
import os
import signal
import sys
from collections.abc import Callable, Hashable
from contextlib import closing
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from suite.bundle.derive import record_of
from suite.bundle.event_fields import Turn
from suite.bundle.record import Record
from suite.bundle.store import Bundle, find_bundles
from suite.bundle.verify import verify
from suite.conduct.planning.plan import Plan
from suite.conduct.planning.turns import turns_refused
from suite.conduct.running.at_once import in_turns
from suite.conduct.running.session import Settings, Summary, run_plan
from suite.launch.local import LocalLauncher
from suite.spec.base import UsageError
from suite.spec.manifest import Manifest, Measure
from tests.conduct.requests import STACKS, installed_stacks, make_plan, request
from tests.conduct.sessions import Instantly, Remembering
from tests.launch.ranks import QUICK
from tests.worker.written import events_in

Script = Callable[..., None]
MEASURE = Measure(device="cpu", precision="fp32", warmup=1, iterations=5, turns="iterations")
#: of an iteration that really lasts
SLEEPING = {"sleep": True, "measured": True, "seconds": 0.02}
DEEPSPEEDS_BYTES = 1 << 20
OF_DEEPSPEED = {"memory_bytes": DEEPSPEEDS_BYTES}


@pytest.fixture(autouse=True)
def no_process_is_left() -> Any:
    before = set(psutil.Process().children(recursive=True))  # daemons of other tests in this process
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


def plan_of(**changes: Any) -> Plan:
    return make_plan(request(**{"ranks": (1,), "repeats": 1, "measure": MEASURE, **changes}), STACKS)


def together(manifest: Manifest) -> Hashable:
    return manifest.size.name, manifest.run.repeat


def work(plan: Plan, root: Path, view: Any = None, group: Any = together, launcher: Any = None) -> Summary:
    settings = Settings(root=root, python=sys.executable)
    way = partial(in_turns, group=group)
    return run_plan(plan, settings, launcher or LocalLauncher(QUICK), view or Remembering(), way)


def starts_of(bundles: list[Bundle]) -> dict[str, list[Bundle]]:
    """Bundles by their start, each of which names them all; one works at a time."""
    starts: dict[str, list[Bundle]] = {}
    for bundle in bundles:
        starts.setdefault(record_of(bundle).turns.start, []).append(bundle)
    for rows in starts.values():
        told = [record_of(bundle).turns for bundle in rows]
        assert {turns.rows for turns in told if turns} == {tuple(sorted(bundle.id for bundle in rows))}
        for (_, ended, one), (began, _, other) in pairwise(sorted(span for bundle in rows for span in spans(bundle))):
            assert one == other or began >= ended
    return starts


def records(root: Path) -> dict[str, Record]:
    """By backend; each bundle is what its files say, but for phases whose times are the script's."""
    bundles = find_bundles([root])
    for found in map(verify, bundles):
        assert not found.differences
        assert all(finding.name.endswith("-times") for finding in found.findings)
    return {record.run.backend: record for record in map(record_of, bundles)}


def spans(bundle: Bundle) -> list[tuple[float, float, str]]:
    """When each iteration of each rank began and ended, and of which run."""
    told = [event for path in bundle.path.glob("events/rank-*.jsonl") for event in map(json.loads, path.open())]
    iterations = [event for event in told if event["kind"] == "iteration"]
    return [(event["time"] - event["seconds"], event["time"], bundle.id) for event in iterations]


def is_deepspeeds(event: dict[str, Any]) -> bool:
    """The last event before training in iteration 2, with the memory that its script has."""
    return (event["kind"], event.get("iteration"), event.get("phase")) == ("memory", 2, "reward") and (
        event["peak_allocated_bytes"] == DEEPSPEEDS_BYTES
    )


class Striking(Remembering):
    """Does this once, in iteration 2 of DeepSpeed's row, so that others wait; it gets each backend's process ids."""

    def __init__(self, root: Path, do: Callable[[dict[str, list[int]]], None]) -> None:
        super().__init__()
        self._root, self._do, self._has_struck = root, do, False

    def event(self, event: dict[str, Any]) -> None:
        super().event(event)
        if is_deepspeeds(event) and not self._has_struck:
            self._has_struck = True
            self._do({bundle.manifest().backend.name: self._pids(bundle) for bundle in find_bundles([self._root])})

    def _pids(self, bundle: Bundle) -> list[int]:
        return [events_in(bundle.path, "start", rank)[0]["pid"] for rank in range(bundle.manifest().layout.ranks)]


def test_rows_of_a_start_work_one_at_a_time_and_their_bundles_name_each_other(tmp_path: Path, script: Script) -> None:
    script(**SLEEPING)
    summary = work(plan_of(ranks=(1, 2), repeats=2), tmp_path)
    assert len(summary.measured) == 8
    starts = starts_of(find_bundles([tmp_path]))
    assert [len(rows) for rows in starts.values()] == [4, 4], "a start for each repeat"
    records(tmp_path)


def test_rows_alone_and_of_other_groups_are_started_one_after_the_other(tmp_path: Path, script: Script) -> None:
    script()
    alone = plan_of(measure=MEASURE.model_copy(update={"turns": "rounds"}))
    work(alone, tmp_path / "alone", group=lambda manifest: None)
    assert {record.turns for record in records(tmp_path / "alone").values()} == {None}
    work(plan_of(), tmp_path / "apart", group=lambda manifest: manifest.backend.name)
    assert {len(record.turns.rows) for record in records(tmp_path / "apart").values() if record.turns} == {1}


def test_what_is_left_of_a_start_is_started_without_what_was_made_before(tmp_path: Path, script: Script) -> None:
    script()
    work(plan_of(backends=("megatron",)), tmp_path)
    summary = work(plan_of(), tmp_path)
    assert len(summary.measured) == 1 and len(summary.done_before) == 1
    turns = [record.turns for record in records(tmp_path).values()]
    assert len({one.start for one in turns if one}) == 2 and {len(one.rows) for one in turns if one} == {1}


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [({"do": "signal"}, "rank_lost"), ({"do": "raise", "kind": "oom_host"}, "oom_host"), ({"do": "exit"}, "unknown")],
)
def test_a_row_that_dies_fails_alone(trouble: dict[str, Any], kind: str, tmp_path: Path, script: Script) -> None:
    script(of={"megatron": {"at": {"iteration": 2, "rank": 1, **trouble}}})
    summary = work(plan_of(ranks=(2,)), tmp_path)
    assert (len(summary.measured), len(summary.failed)) == (1, 1)
    found = records(tmp_path)
    assert found["deepspeed"].status == "ok"
    assert found["megatron"].failure is not None and found["megatron"].failure.kind == kind


def test_a_row_that_is_killed_while_it_waits_fails_alone(tmp_path: Path, script: Script) -> None:
    script(**SLEEPING, of={"deepspeed": OF_DEEPSPEED})
    view = Striking(tmp_path, lambda pids: os.kill(pids["megatron"][1], signal.SIGKILL))
    summary = work(plan_of(ranks=(2,)), tmp_path, view)
    assert (len(summary.measured), len(summary.failed)) == (1, 1)
    found = records(tmp_path)
    assert found["megatron"].failure is not None and found["megatron"].failure.kind == "rank_lost"
    assert found["deepspeed"].status == "ok"


def test_an_interrupt_ends_all_rows_and_the_same_command_starts_them_together(tmp_path: Path, script: Script) -> None:
    script(**SLEEPING, of={"deepspeed": OF_DEEPSPEED})
    summary = work(plan_of(), tmp_path, Striking(tmp_path, lambda pids: os.kill(os.getpid(), signal.SIGTERM)))
    assert summary.interrupted and not summary.failed and not summary.measured
    assert {record.status for record in records(tmp_path).values()} == {"interrupted"}
    assert len(work(plan_of(), tmp_path).measured) == 2
    assert len({record.turns.start for record in records(tmp_path).values() if record.turns}) == 1


@pytest.mark.ranks
@pytest.mark.timeout(400)
def test_real_engines_take_turns_with_the_same_work_as_ever(tmp_path: Path) -> None:
    measure = MEASURE.model_copy(update={"turn_length": 2})
    plan = make_plan(request(ranks=(1, 2), repeats=1, measure=measure), installed_stacks())
    with closing(LocalLauncher(start="fork")) as launcher:
        work(plan, tmp_path, launcher=launcher)
    bundles = find_bundles([tmp_path])
    assert [(verify(bundle).status, record_of(bundle).status) for bundle in bundles] == [("equal", "ok")] * 4
    assert [len(rows) for rows in starts_of(bundles).values()] == [4]
    for ranks in (1, 2):
        assert len({record_of(one).counts for one in bundles if one.manifest().layout.ranks == ranks}) == 1
    turns = [turn.iteration for turn in bundles[0].events().of(0, Turn)]
    assert turns == [0, 2, 4]


def test_launchers_whose_ranks_this_host_does_not_reach_are_refused(tmp_path: Path) -> None:
    assert turns_refused(LocalLauncher()) is None
    launcher: Any = Instantly()
    launcher.runtime = SimpleNamespace(facts=SimpleNamespace(remote=True))
    settings = Settings(root=tmp_path, python=sys.executable)
    with pytest.raises(UsageError, match="the container runtime is on another host; --turns rounds runs"):
        run_plan(plan_of(), settings, launcher, Remembering(), partial(in_turns, group=together))
