"""Runs through a real Slurm of two nodes: submitted, watched, ended and brought home by the commands themselves."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suite.bundle.facts import facts_of
from suite.bundle.store import Bundle, find_bundles
from suite.launch.cluster.submission import Submission, submissions, write_submission
from tests.slurm import Slurm
from tests.synthetic import make_bundle
from tests.waiting import wait_until

pytestmark = pytest.mark.daemon

ROOT = Path(__file__).resolve().parents[2]
SCRIPTED = str(ROOT / "tests/scripted_suite.py")
#: 1M on two nodes with two ranks each, started by Slurm itself: torchrun would import torch four times for nothing
SMALL = ("--backend", "deepspeed", "--size", "1M", "--device", "cpu", "--nodes", "2", "--gpus-per-node", "2")
ONCE = ("--repeats", "1", "--warmup", "1", "--no-exclusive", "--timeout", "5m", "--allowance", "1m")
BY_SLURM = ("--starter", "srun")
GPUS = ("--device", "cuda", "--workload", "cpu", "--dtype", "fp32")

Suite = Callable[..., subprocess.CompletedProcess]


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """Where the nodes keep what is temporary."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def suite(slurm: Slurm, scratch: Path) -> Suite:
    """The command with this Slurm; a scripted worker unless asked otherwise."""
    environment = {**slurm.environment, "TMPDIR": str(scratch)}

    def call(*arguments: str, scripted: bool = True) -> subprocess.CompletedProcess:
        start = [SCRIPTED] if scripted else ["-m", "suite"]
        command = [sys.executable, *start, *arguments]
        return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=150)

    return call


def script(**body: object) -> tuple[str, str]:
    return "--env", f"SUITE_SCRIPT={json.dumps(body)}"


def submitted(suite: Suite, runs: Path, *options: str, scripted: bool = True) -> list[Submission]:
    """Hand runs over and give back what is known of them."""
    done = suite("submit", "slurm", *SMALL, *ONCE, *options, "--runs", str(runs), scripted=scripted)
    assert done.returncode == 0, done.stderr
    return list(submissions(runs))


def brought_home(suite: Suite, runs: Path, exit_code: int = 0) -> Any:
    """The record of the one run of a folder, once it is over."""
    done = suite("collect", "--wait", "--runs", str(runs))
    assert done.returncode == exit_code, done.stdout + done.stderr
    # Slurm calls a job over while its nodes still end it and tidy up
    wait_until(lambda: not list((runs / "scratch").glob("suite.*")))
    (bundle,) = find_bundles([runs])
    assert suite("verify", str(bundle.path)).returncode == 0
    return bundle.record()


@pytest.mark.ranks
def test_two_nodes_measure_and_stand_beside_a_local_run(suite: Suite, scratch: Path, tmp_path: Path) -> None:
    runs = tmp_path / 'it\'s $(ours), "quoted" & ünïcode 100%'
    one_rank_each = ("--gpus-per-node", "1", "--iterations", "2")
    (submission,) = submitted(suite, runs, *one_rank_each, scripted=False)
    record = brought_home(suite, runs)
    assert (record.status, record.run.launcher, record.run.ranks) == ("ok", "slurm", 2)
    assert record.run.layout.nodes == 2
    bundle = Bundle(runs / submission.run_id)
    assert sorted(bundle.events().ranks) == [0, 1]
    assert facts_of(bundle.events(), 0)["packages"]["torch"], "a long event came in pieces"
    make_bundle(runs)
    report = tmp_path / "report.md"
    assert suite("report", str(runs), "-o", str(report)).returncode == 0
    text = report.read_text()
    assert "slurm" in text and "local" in text
    assert not list(scratch.glob("suite.*")), "the nodes keep nothing"


@pytest.mark.ranks
def test_a_rank_that_is_killed_under_torchrun_is_named(suite: Suite, tmp_path: Path) -> None:
    submitted(suite, tmp_path, *script(at={"iteration": 1, "rank": 3, "do": "signal", "others": "hang"}))
    record = brought_home(suite, tmp_path, exit_code=1)
    assert record.status == "failed"
    assert (record.failure.kind, record.failure.evidence) == ("rank_lost", ("rank 3 ended by SIGKILL",))


@pytest.mark.ranks
def test_a_torchrun_that_is_killed_is_named_and_leaves_nothing(suite: Suite, scratch: Path, tmp_path: Path) -> None:
    submitted(suite, tmp_path, *script(at={"iteration": 1, "rank": 2, "do": "parent"}))
    record = brought_home(suite, tmp_path, exit_code=1)
    assert (record.failure.kind, record.failure.evidence[0]) == ("rank_lost", "node-1 ended by SIGKILL")
    assert not any("SUITE_SCRIPT" in line for line in record.failure.evidence)
    for log in (tmp_path / record.run.id / "logs").iterdir():
        assert "SUITE_SCRIPT" not in log.read_text(), log
    assert list(scratch.iterdir()) == []


def test_a_rank_that_slurm_started_and_lost_is_named(suite: Suite, tmp_path: Path) -> None:
    submitted(suite, tmp_path, *BY_SLURM, *script(at={"iteration": 1, "rank": 2, "do": "signal", "others": "hang"}))
    record = brought_home(suite, tmp_path, exit_code=1)
    assert (record.failure.kind, record.failure.evidence[0]) == ("rank_lost", "rank 2 ended by SIGKILL")


def test_a_cancelled_run_is_a_bundle_that_says_interrupted(suite: Suite, tmp_path: Path) -> None:
    (submission,) = submitted(suite, tmp_path, *BY_SLURM, *script(at={"iteration": 1, "do": "hang"}))
    wait_until(lambda: '"RUNNING"' in suite("status", "--json", "--runs", str(tmp_path)).stdout)
    refused = suite("collect", submission.run_id, "--runs", str(tmp_path))
    assert refused.returncode == 2
    assert "is not over" in refused.stderr
    assert suite("cancel", submission.run_id, "--runs", str(tmp_path)).returncode == 0
    record = brought_home(suite, tmp_path, exit_code=1)
    assert record.status == "interrupted"
    assert record.failure.kind == "interrupted"
    assert "CANCELLED" in record.failure.evidence[0]


def test_an_array_holds_all_runs_that_ask_for_the_same(suite: Suite, tmp_path: Path) -> None:
    both = ("--backend", "deepspeed", "--repeats", "3", "--array", "--at-once", "3", *BY_SLURM)
    handed = submitted(suite, tmp_path, *both)
    arrays = {submission.scheduler["job"].split("_")[0] for submission in handed}
    assert (len(handed), len(arrays)) == (3, 1)
    assert suite("collect", "--wait", "--runs", str(tmp_path)).returncode == 0
    assert [bundle.id for bundle in find_bundles([tmp_path])] == sorted(each.run_id for each in handed)
    again = suite("submit", "slurm", *SMALL, *ONCE, *both, "--runs", str(tmp_path))
    assert "done, so not submitted" in again.stdout


def test_a_smoke_run_that_fails_keeps_the_others_from_starting(suite: Suite, tmp_path: Path) -> None:
    trouble = script(at={"iteration": 1, "rank": 1, "do": "oom", "others": "hang"})
    submitted(suite, tmp_path, *BY_SLURM, *trouble, "--repeats", "2", "--smoke")
    assert suite("collect", "--wait", "--runs", str(tmp_path)).returncode == 1
    records = [bundle.record() for bundle in find_bundles([tmp_path])]
    assert [record and (record.status, record.throughput) for record in records] == [("interrupted", None)] * 2
    assert suite("collect", "--wait", "--runs", str(tmp_path / ".smoke")).returncode == 1
    (smoke,) = find_bundles([tmp_path / ".smoke"])
    record = smoke.record()
    assert (record.failure.kind, record.failure.phase) == ("oom_device", "train")
    assert "rank 1: " in record.failure.evidence[0]


def test_what_a_driver_that_died_left_behind_is_enough(suite: Suite, tmp_path: Path) -> None:
    """It ended between handing the job over and writing down its id."""
    (submission,) = submitted(suite, tmp_path, *BY_SLURM)
    write_submission(tmp_path, submission.with_scheduler(job=None))
    assert brought_home(suite, tmp_path).status == "ok"


def test_a_job_that_slurm_has_forgotten_is_collected_from_its_output(suite: Suite, tmp_path: Path) -> None:
    (submission,) = submitted(suite, tmp_path, *BY_SLURM)
    first = brought_home(suite, tmp_path)
    shutil.rmtree(tmp_path / submission.run_id)
    (output,) = (tmp_path / ".submitted").glob("*.out")
    output.rename(f"{submission.fact('output', str)}-999999.out")
    write_submission(tmp_path, submission.with_scheduler(job="999999"))
    again = brought_home(suite, tmp_path)
    assert again.status == "ok"
    assert again.throughput == first.throughput
    assert again.run.started == pytest.approx(first.run.started, abs=2)


def test_a_rendered_script_can_be_handed_over_by_hand(suite: Suite, slurm: Slurm, tmp_path: Path) -> None:
    arguments = (*SMALL, *ONCE, *BY_SLURM, "--runs", str(tmp_path / "runs"), "-o", str(tmp_path / "scripts"))
    assert suite("submit", "slurm", "-o", "-", *arguments).returncode == 0
    (path,) = (tmp_path / "scripts").glob("*.sbatch")
    assert "rendered" in suite("status", "--runs", str(tmp_path / "runs")).stdout
    assert slurm.call("sbatch", str(path)).returncode == 0
    assert brought_home(suite, tmp_path / "runs").status == "ok"


def test_the_nodes_gpus_are_asked_for_and_seen(suite: Suite, slurm: Slurm, tmp_path: Path) -> None:
    gpus = (*GPUS, "--gpu-request", "gres")
    (submission,) = submitted(suite, tmp_path, *BY_SLURM, *gpus, *script(at={"iteration": 1, "do": "hang"}))
    job = slurm.call("scontrol", "show", "job", submission.scheduler["job"]).stdout
    assert "TresPerNode=gres:gpu:2" in job
    assert suite("cancel", "--all", "--runs", str(tmp_path)).returncode == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--partition", "nope"), "invalid partition"),
        (("--partition", "one"), "node"),
        ((*GPUS, "--gpus-per-node", "16"), "configuration is not available"),
        (("--timeout", "2h"), "can never start"),
        (("--constraint", "no such"), "feature"),
    ],
    ids=["no such partition", "too few nodes", "too few GPUs", "too long", "no such feature"],
)
def test_what_slurm_refuses_is_one_line_and_leaves_nothing(suite, slurm, tmp_path, options, words):
    before = set(slurm.jobs())
    runs = tmp_path / "runs"
    done = suite("submit", "slurm", *SMALL, *ONCE, *options, "--runs", str(runs))
    assert done.returncode == 2, done.stdout
    assert words in done.stderr
    assert len([line for line in done.stderr.splitlines() if not line.startswith("note: ")]) == 1
    assert not runs.exists()
    assert set(slurm.jobs()) <= before
