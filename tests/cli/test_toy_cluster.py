"""A new cluster launcher is one module and one line: every public command then knows it."""

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import suite.cli
from suite.bundle.store import Bundle
from suite.launch.cluster.launcher import SchedulerState
from suite.launch.cluster.registry import CLUSTER_LAUNCHERS, find_launcher
from suite.launch.cluster.submission import Submission, submissions
from suite.spec.base import UsageError
from tests import toy_cluster
from tests.command import refused, told
from tests.command import suite as in_process

STACK = ("--stack", "torch=1", "--stack", "deepspeed=1", "--stack", "transformers=5")
SMALL = ("--backend", "deepspeed", "--size", "1M", "--device", "cpu", "--gpus-per-node", "2", "--repeats", "1", *STACK)

Call = Callable[..., Result]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command line of a program that was started with one more line in the registry."""
    monkeypatch.setitem(CLUSTER_LAUNCHERS, toy_cluster.NAME, toy_cluster.REGISTERED_AS)
    monkeypatch.setattr(toy_cluster, "JOBS", {})
    for name in ("commands", "submit", "saved_help", "app"):
        importlib.import_module(f"suite.cli.{name}")
        monkeypatch.delitem(sys.modules, f"suite.cli.{name}")
        monkeypatch.delattr(suite.cli, name)
    return in_process


def submit(runs: Path, *more: str) -> str:
    (run_id,) = told("submit", "toy", *SMALL, *more, "--runs", runs)["runs"]
    return str(run_id)


def test_its_options_and_words_are_in_the_help(call: Call) -> None:
    shown = call("submit", "toy", "--help-all").output
    assert "--lane" in shown and "--nodes" in shown and "--size" in shown
    assert toy_cluster.ToyLauncher.submit_help in shown
    assert "--partition" not in shown and "--detach" not in shown
    assert "toy" in call("submit", "--help").output


def test_a_run_is_submitted_looked_at_and_collected(call: Call, tmp_path: Path) -> None:
    done = call("submit", "toy", *SMALL, "--lane", "fast", "--runs", tmp_path)
    (submission,) = submissions(tmp_path)
    run_id = submission.run_id
    assert done.exit_code == 0 and done.stdout.startswith(f"{run_id}: toy job fast-0\n")
    assert call("status", "--runs", tmp_path).stdout == f"{run_id}  RUNNING  in lane fast\n"
    again = call("submit", "toy", *SMALL, "--lane", "fast", "--runs", tmp_path)
    assert f"under way, so not submitted: {run_id}" in again.stdout and list(toy_cluster.JOBS) == ["fast-0"]
    toy_cluster.JOBS["fast-0"] = "over"
    collected = call("collect", "--runs", tmp_path)
    assert collected.exit_code == 0 and run_id in collected.stdout
    record = Bundle(tmp_path / run_id).record()
    assert record is not None and (record.status, record.run.launcher, record.run.ranks) == ("ok", "toy", 2)
    assert call("verify", str(tmp_path / run_id)).exit_code == 0
    assert "collected" in call("status", "--runs", tmp_path).stdout
    again = call("submit", "toy", *SMALL, "--lane", "fast", "--runs", tmp_path)
    assert f"done, so not submitted: {run_id}" in again.stdout


def test_a_run_is_cancelled_and_its_bundle_says_interrupted(call: Call, tmp_path: Path) -> None:
    run_id = submit(tmp_path)
    assert run_id in call("cancel", "--all", "--runs", tmp_path).stdout
    collected = call("collect", run_id, "--runs", tmp_path, "--json")
    assert collected.exit_code == 1
    assert json.loads(collected.stdout)["collected"][run_id]["status"] == "interrupted"


def test_a_silent_run_keeps_no_other_from_its_end(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def look(self: toy_cluster.ToyScheduler, submission: Submission) -> SchedulerState:
        if submission.run_id == silent:
            raise UsageError("lane closed")
        return answer(self, submission)

    silent, answer = submit(tmp_path), toy_cluster.ToyScheduler.look
    other = submit(tmp_path, "--iterations", "3")
    monkeypatch.setattr(toy_cluster.ToyScheduler, "look", look)
    seen = call("status", "--runs", tmp_path)
    assert seen.exit_code == 1 and f"{silent}  no answer  lane closed\n" in seen.stdout and other in seen.stdout
    ended = call("cancel", "--all", "--json", "--runs", tmp_path)
    assert ended.exit_code == 1
    assert json.loads(ended.stdout) == {"cancelled": [other], "over": [], "failed": {silent: "lane closed"}}
    home = call("collect", "--runs", tmp_path)
    assert home.exit_code == 1 and home.stderr == f"{silent}: not collected: lane closed\n" and other in home.stdout
    for command in ("status", "cancel", "collect"):
        assert refused(command, silent, "--runs", tmp_path) == "error: lane closed\n"


def test_what_is_refused_is_one_line_and_leaves_nothing(call: Call, tmp_path: Path) -> None:
    toy_cluster.JOBS.update(a="running", b="running")
    assert "the toy cluster is full: cancel" in refused("submit", "toy", *SMALL, "--runs", tmp_path / "runs")
    with pytest.raises(UsageError, match=r"no cluster launcher 'slrum', did you mean 'slurm'\? \(there are: slurm, ku"):
        find_launcher("slrum")
    wrong = refused("submit", "toy", *SMALL, "--lane", "left", "--runs", tmp_path / "runs")
    assert wrong == "error: --lane is fast or slow, not 'left'\n"
    assert not (tmp_path / "runs").exists()


def test_a_runs_manifest_is_submitted_again_by_its_name_alone(call: Call, tmp_path: Path) -> None:
    run_id = submit(tmp_path, "--env", "NCCL_ALGO=Tree")
    toy_cluster.JOBS.update(dict.fromkeys(toy_cluster.JOBS, "over"))
    call("collect", "--runs", tmp_path)
    again = ("submit", "toy", "--manifest", str(tmp_path / run_id), "--repeats", "1", *STACK, "--runs", tmp_path)
    assert "--env NCCL_ALGO=Tree" in refused(*again)
    assert "--size: a manifest says what is measured; leave it out" in refused(*again, "--size", "3M")
    done = call(*again, "--env", "NCCL_ALGO=Tree")
    assert done.exit_code == 0, done.output
    repeat = run_id.removesuffix("r1") + "r2"
    assert done.stdout.startswith(f"{repeat}: toy job")
    handed = {each.run_id: each for each in submissions(tmp_path)}[repeat]
    assert handed.manifest.run.plan == "rerun-1-of-1" and handed.job.env["NCCL_ALGO"] == "Tree"


def test_a_row_is_rerun_on_the_cluster_and_judged(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rerun = importlib.import_module("suite.cli.rerun")
    assert rerun.CLUSTER_LAUNCHERS is CLUSTER_LAUNCHERS
    run_id = submit(tmp_path, "--lane", "fast")
    toy_cluster.JOBS["fast-0"] = "over"
    call("collect", "--runs", tmp_path)
    monkeypatch.setattr(toy_cluster, "RUNNING", "over")
    ask = ("rerun", str(tmp_path / run_id), "--launcher", "toy", "--repeats", "1", "--runs", tmp_path)
    assert "--lane is fast or slow" in refused(*ask, "--", "--lane", "left", *STACK)
    unknown = call(*ask, "--", "--wrong", *STACK)
    assert unknown.exit_code == 2 and "No such option" in unknown.stderr
    local = refused("rerun", tmp_path / run_id, "--runs", tmp_path, "--", "--lane", "fast")
    assert "--lane: what follows -- is for a cluster" in local
    done = call(*ask, "--json", "--", "--lane", "fast", *STACK)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["compared_with"] == [run_id] and found["verdict"] == "cannot tell"
    (after,) = found["records"]
    assert (after["run"]["id"], after["status"]) == (run_id.removesuffix("r1") + "r2", "ok")
