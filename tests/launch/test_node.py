"""The program that supervises a node's ranks where they run, as whatever starts it sees it."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from suite.launch.node import lower_limit, node_arguments
from tests.launch.ranks import make_folder, make_job


def start(root: Path, script: str, ranks: int = 1, expect: dict[str, int] | None = None, **limits: Any):
    folder = make_folder(root)
    job = make_job(folder, script, ranks, **limits)
    command = (sys.executable, "-m", "suite.launch.node", *node_arguments(job, str(root), expect or {}))
    return subprocess.Popen(command, env={**job.env, "PYTHONPATH": "."}, stdout=subprocess.PIPE)


def ended(node: subprocess.Popen) -> tuple[list[dict], dict]:
    """Rank 0's events and the outcome, in that order, one line each and nothing else."""
    out, _ = node.communicate(timeout=30)
    lines = out.decode().splitlines()
    assert all(line.startswith("::suite:: {") for line in lines), lines
    events = [json.loads(line.removeprefix("::suite:: ")) for line in lines]
    assert [event["kind"] for event in events].count("outcome") == 1 and events[-1]["kind"] == "outcome"
    return events[:-1], events[-1]


def test_events_are_repeated_and_the_outcome_comes_last(tmp_path: Path) -> None:
    node = start(tmp_path, 'event("start")\nprint("said")\nevent("end", status="ok")', ranks=2)
    events, outcome = ended(node)
    assert node.returncode == 0 and [event["kind"] for event in events] == ["start", "end"]
    assert (outcome["status"], outcome["exit_codes"], outcome["failure"]) == ("ok", {"0": 0, "1": 0}, None)
    assert (tmp_path / "logs" / "rank-1.log").read_text() == "said\n"


def test_a_failed_rank_is_told_with_its_classification(tmp_path: Path) -> None:
    node = start(tmp_path, 'event("start")\nprint("RuntimeError: CUDA out of memory.", file=sys.stderr)\nsys.exit(1)')
    _, outcome = ended(node)
    assert node.returncode == 1 and outcome["failure"]["kind"] == "oom_device"


def test_a_hang_is_judged_beside_the_ranks(tmp_path: Path) -> None:
    _, outcome = ended(start(tmp_path, 'event("start")\ntime.sleep(60)', silence_seconds=0.3))
    assert outcome["failure"]["kind"] == "hang"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_the_ranks_and_is_told(tmp_path: Path, number: signal.Signals) -> None:
    node = start(tmp_path, 'event("start")\ntime.sleep(60)')
    events = tmp_path / "events" / "rank-0.jsonl"
    deadline = time.monotonic() + 20
    while not events.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    node.send_signal(number)
    _, outcome = ended(node)
    assert node.returncode == 130 and outcome["failure"]["evidence"] == [f"the driver was sent {number.name}"]


def test_a_program_that_is_not_there_is_a_matter_of_configuration(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    job = make_job(folder, "").model_copy(update={"argv": ("/opt/none/python",)})
    command = (sys.executable, "-m", "suite.launch.node", *node_arguments(job, str(tmp_path), {}))
    _, outcome = ended(subprocess.Popen(command, stdout=subprocess.PIPE))
    assert outcome["failure"]["kind"] == "config" and "/opt/none/python" in outcome["failure"]["evidence"][0]


def test_a_limit_below_what_was_asked_for_starts_nothing(tmp_path: Path) -> None:
    node = start(tmp_path, 'event("start")', expect={"nofile": 1 << 40, "stack": 1})
    events, outcome = ended(node)
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert events == [] and outcome["failure"]["kind"] == "config" and outcome["exit_codes"] == {"0": None}
    assert outcome["failure"]["evidence"] == [f"the limit nofile is {soft} here, {1 << 40} was asked for"]


def test_no_limit_at_all_is_more_than_any(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, wanted, is_lower in [(-1, -1, False), (-1, 5, False), (5, 5, False), (4, 5, True), (4, -1, True)]:
        monkeypatch.setattr(resource, "getrlimit", lambda number, soft=soft: (soft, soft))
        assert bool(lower_limit("memlock", wanted)) == is_lower


def test_a_node_that_nobody_listens_to_runs_on(tmp_path: Path) -> None:
    node = start(tmp_path, 'event("start")\ntime.sleep(0.5)\nevent("end", status="ok")')
    node.stdout.close()
    assert node.wait(20) == 0
    assert (tmp_path / "events" / "rank-0.jsonl").read_text().count("\n") == 2


def test_ranks_see_what_the_node_was_given(tmp_path: Path) -> None:
    node = start(tmp_path, 'event("start", world=os.environ["WORLD_SIZE"], path=os.environ["PYTHONPATH"])', ranks=3)
    events, _ = ended(node)
    assert (events[0]["world"], events[0]["path"]) == ("3", ".")
