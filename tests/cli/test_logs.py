"""`suite logs` and `suite clean`: what a run prints, wherever it is, and what is left of it afterwards."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from suite.conduct.cluster import logs as reading
from suite.launch.cluster.submission import FOLDER, Submission, write_submission
from suite.launch.slurm import client
from suite.launch.slurm.client import QueueEntry
from tests.bundle.tampering import derive_again, events_of, write_events
from tests.command import refused, suite
from tests.launch.slurm.jobs import job, manifest
from tests.synthetic import make_bundle

OUTPUT = (
    b"::suite:: {}\n",
    b"0: first \x1b[31mred\x1b[0m\n",
    b"1: second\n",
    b"0: ::suite:: {}\n",
    b"slurmstepd: error: trouble\n",
)


@pytest.fixture
def submitted(tmp_path: Path) -> Submission:
    """A run of two nodes that Slurm has, with its output so far."""
    made = manifest(nodes=2, gpus=2)
    output = tmp_path / FOLDER / made.run.id
    scheduler = {"name": made.run.id, "index": None, "job": "7", "output": str(output), "starter": "torchrun"}
    body = {"launcher": "slurm", "manifest": made, "job": job(made), "environment": {}, "scheduler": scheduler}
    submission = Submission(**body, submitted=100.0)  # type: ignore[arg-type]
    write_submission(tmp_path, submission)
    output.with_name(f"{made.run.id}-7.out").write_bytes(b"".join(OUTPUT))
    return submission


def queue(monkeypatch: pytest.MonkeyPatch, *states: str | Callable[[], str]) -> None:
    """What squeue says, look by look; the last again and again."""
    left = list(states)

    def find(job: str) -> QueueEntry:
        state = left.pop(0) if len(left) > 1 else left[0]
        return QueueEntry("7", state if isinstance(state, str) else state(), 100.0, None, "n[1-2]", "None")

    monkeypatch.setattr(client, "find", find)


class TestLogs:
    def test_a_bundles_logs_rank_by_rank(self, tmp_path: Path) -> None:
        bundle = make_bundle(tmp_path)
        for rank in (10, 2):
            (bundle / "logs" / f"rank-{rank}.log").write_bytes(b"1\n2\n\x1b[2Jrank %d\n" % rank)
        done = suite("logs", bundle.name, "--runs", tmp_path, "-n", "2")
        assert done.stdout.splitlines() == ["rank-2 | 2", "rank-2 | rank 2", "rank-10 | 2", "rank-10 | rank 10"]
        alone = suite("logs", str(bundle), "--only", "rank-10", "-n", "1")
        assert alone.stdout == "rank 10\n"

    def test_a_run_that_slurm_has(self, tmp_path: Path, submitted: Submission, monkeypatch: pytest.MonkeyPatch) -> None:
        queue(monkeypatch, "RUNNING")
        done = suite("logs", submitted.run_id, "--runs", tmp_path)
        assert done.exit_code == 0, done.output
        lines = ["node-0 | first red", "node-1 | second", "slurm | slurmstepd: error: trouble"]
        assert done.stdout.splitlines() == lines
        assert "RUNNING job 7" in done.stderr
        none = suite("logs", submitted.run_id, "--runs", tmp_path, "--only", "node-7")
        assert (none.exit_code, "it has node-0, node-1, slurm" in none.stderr) == (2, True)

    def test_what_comes_is_followed_until_the_run_is_over(self, tmp_path, submitted, monkeypatch):
        path = Path(f"{submitted.scheduler['output']}-7.out")

        def write_third() -> str:
            with path.open("ab") as file:
                file.write(b"0: third\n")
            return "RUNNING"

        queue(monkeypatch, "RUNNING", write_third, "COMPLETED")
        monkeypatch.setattr(reading, "POLL_SECONDS", 0.0)
        done = suite("logs", submitted.run_id, "--runs", tmp_path, "--follow", "--only", "node-0")
        assert done.stdout.splitlines() == ["first red", "third"]
        assert [line.split()[0] for line in done.stderr.splitlines()] == ["RUNNING", "COMPLETED"]

    def test_a_run_that_nobody_knows_is_one_line_with_the_nearest(self, tmp_path: Path) -> None:
        bundle = make_bundle(tmp_path)
        told = refused("logs", f"{bundle.name[:-1]}9", "--runs", tmp_path)
        assert f"did you mean '{bundle.name}'" in told


class TestClean:
    def collected(self, root: Path, submission: Submission) -> Path:
        bundle = make_bundle(root, submission.manifest)
        launch, *rest = events_of(bundle, "driver")
        write_events(bundle, "driver", [{**launch, "launcher": submission.launcher}, *rest])
        derive_again(bundle)
        return bundle

    def test_outputs_of_collected_runs_go_and_bundles_stay(self, tmp_path: Path, submitted: Submission) -> None:
        bundle = self.collected(tmp_path, submitted)
        before = {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()}
        listed = suite("clean", "--runs", tmp_path, "--dry-run")
        assert f"{submitted.run_id}: 2 files" in listed.stdout
        asked = suite("clean", "--runs", tmp_path)
        assert (asked.exit_code, "--yes removes without asking" in asked.stderr) == (2, True)
        assert len(list((tmp_path / FOLDER).iterdir())) == 2
        done = suite("clean", "--runs", tmp_path, "--yes")
        assert done.exit_code == 0 and "removed" in done.stdout
        assert list((tmp_path / FOLDER).iterdir()) == []
        assert {path: path.read_bytes() for path in bundle.rglob("*") if path.is_file()} == before

    @pytest.mark.parametrize(
        ("state", "words"),
        [
            ("not collected", "stays, not collected"),
            ("submitted again", "submitted again since"),
            ("damaged", "cannot be trusted"),
            ("young", "too young"),
        ],
    )
    def test_what_is_still_needed_stays(self, tmp_path: Path, submitted: Submission, state: str, words: str) -> None:
        if state != "not collected":
            bundle = self.collected(tmp_path, submitted)
        if state == "submitted again":
            write_submission(tmp_path, submitted.model_copy(update={"submitted": time.time() + 9e8}))
        if state == "damaged":
            (bundle / "manifest.json").write_text("{}")
        done = suite("clean", "--runs", tmp_path, "--yes", *(["--older-than", "80000h"] if state == "young" else []))
        assert words in done.stderr and "nothing to remove" in done.stdout
        assert len(list((tmp_path / FOLDER).iterdir())) == 2


def test_a_collected_run_is_not_said_to_be_cancelled(tmp_path: Path, submitted: Submission) -> None:
    TestClean().collected(tmp_path, submitted)
    done = suite("cancel", submitted.run_id, "--runs", tmp_path)
    assert done.exit_code == 0
    assert done.stdout == f"{submitted.run_id}: nothing to cancel: collected\n"
    body = json.loads(suite("cancel", submitted.run_id, "--runs", tmp_path, "--json").stdout)
    assert body == {"cancelled": [], "over": [submitted.run_id], "failed": {}}
