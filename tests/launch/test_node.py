"""The program that supervises a node's ranks where they run, as whatever starts it sees it."""

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from suite.launch.node import lower_limit, node_arguments
from tests.launch.ranks import make_folder, make_job
from tests.waiting import wait_until

WELL = 'event("start", world=os.environ["WORLD_SIZE"], path=os.environ["PYTHONPATH"])\nprint("said")\nevent("end")'
WAIT = 'event("start")\ntime.sleep(600)'


def start(root: Path, script: str, ranks: int = 1, expect: dict[str, int] | None = None, **changes: Any):
    limits = {name: changes.pop(name) for name in ("silence_seconds",) if name in changes}
    job = make_job(make_folder(root), script, ranks, **limits).model_copy(update=changes)
    command = (sys.executable, "-m", "suite.launch.node", *node_arguments(job, str(root), expect or {}))
    return subprocess.Popen(command, env={**job.env, "PYTHONPATH": "."}, stdout=subprocess.PIPE)


def ended(node: subprocess.Popen) -> tuple[list[dict], dict]:
    """Rank 0's events and the outcome, in that order, one line each and nothing else."""
    out, _ = node.communicate()
    lines = out.decode().splitlines()
    assert all(line.startswith("::suite:: {") for line in lines), lines
    events = [json.loads(line.removeprefix("::suite:: ")) for line in lines]
    assert [event["kind"] for event in events].count("outcome") == 1 and events[-1]["kind"] == "outcome"
    return events[:-1], events[-1]


def test_events_are_repeated_and_the_outcome_comes_last(tmp_path: Path) -> None:
    node = start(tmp_path, WELL, ranks=2)
    events, outcome = ended(node)
    assert node.returncode == 0 and [event["kind"] for event in events] == ["start", "end"]
    assert (events[0]["world"], events[0]["path"]) == ("2", "."), "ranks see what the node was given"
    assert (outcome["status"], outcome["exit_codes"], outcome["failure"]) == ("ok", {"0": 0, "1": 0}, None)
    assert (tmp_path / "logs" / "rank-1.log").read_text() == "said\n"


@pytest.mark.parametrize(
    ("script", "changes", "kind", "words"),
    [
        ('print("RuntimeError: CUDA out of memory.")\nsys.exit(1)', {}, "oom_device", "CUDA out of memory."),
        (WAIT, {"silence_seconds": 0.3}, "hang", "no event from rank 0 for 0.3 s"),
        ("", {"argv": ("/opt/none/python",)}, "config", "/opt/none/python"),
    ],
    ids=["a rank's log", "silence", "no program"],
)
def test_a_failure_is_classified_beside_the_ranks(tmp_path, script, changes, kind, words):
    node = start(tmp_path, script, **changes)
    _, outcome = ended(node)
    assert (node.returncode, outcome["failure"]["kind"]) == (1, kind)
    assert words in outcome["failure"]["evidence"][0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_signal_ends_the_ranks_and_is_told(tmp_path: Path, number: signal.Signals) -> None:
    node = start(tmp_path, WAIT)
    wait_until((tmp_path / "events" / "rank-0.jsonl").exists)
    node.send_signal(number)
    _, outcome = ended(node)
    assert node.returncode == 130 and outcome["failure"]["evidence"] == [f"the driver was sent {number.name}"]


def test_a_limit_below_what_was_asked_for_starts_nothing(tmp_path: Path) -> None:
    node = start(tmp_path, WELL, expect={"nofile": 1 << 40, "stack": 1})
    events, outcome = ended(node)
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert events == [] and outcome["failure"]["kind"] == "config" and outcome["exit_codes"] == {"0": None}
    assert outcome["failure"]["evidence"] == [f"the limit nofile is {soft} here, {1 << 40} was asked for"]


def test_no_limit_at_all_is_more_than_any(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, wanted, is_lower in [(-1, -1, False), (-1, 5, False), (5, 5, False), (4, 5, True), (4, -1, True)]:
        monkeypatch.setattr(resource, "getrlimit", lambda number, soft=soft: (soft, soft))
        assert bool(lower_limit("memlock", wanted)) == is_lower


def test_a_node_that_nobody_listens_to_runs_on(tmp_path: Path) -> None:
    node = start(tmp_path, f"time.sleep(0.5)\n{WELL}")
    node.stdout.close()
    assert node.wait() == 0
    assert (tmp_path / "events" / "rank-0.jsonl").read_text().count("\n") == 2
