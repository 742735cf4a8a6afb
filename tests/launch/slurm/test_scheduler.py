"""Slurm's answers as the clusters' common words."""

from pathlib import Path

import pytest

from suite.launch.cluster.submission import Submission
from suite.launch.slurm import client, scheduler
from suite.launch.slurm.client import QueueEntry
from suite.launch.slurm.scheduler import SlurmScheduler
from suite.spec.base import UsageError
from tests.launch.slurm.jobs import job, manifest


@pytest.fixture
def handed(tmp_path: Path) -> Submission:
    made = manifest(nodes=2, gpus=2)
    scheduler = {"name": "run", "index": None, "job": "7", "output": str(tmp_path / "run"), "starter": "torchrun"}
    return Submission(launcher="slurm", manifest=made, job=job(made), environment={}, scheduler=scheduler)


def queue(monkeypatch: pytest.MonkeyPatch, state: str | None, reason: str = "None") -> None:
    entry = None if state is None else QueueEntry("7", state, 100.0, 160.0, "n[1-2]", reason)
    monkeypatch.setattr(client, "find", lambda job: entry)


@pytest.mark.parametrize(
    ("state", "phase", "status", "kind", "is_proven"),
    [
        *((state, "pending", None, None, False) for state in ("PENDING", "REQUEUED")),
        *((state, "running", None, None, False) for state in ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED")),
        ("COMPLETED", "over", "ok", None, False),
        ("FAILED", "over", "failed", None, False),
        ("TIMEOUT", "over", "failed", "timeout", False),
        ("OUT_OF_MEMORY", "over", "failed", "oom_host", True),
        ("NODE_FAIL", "over", "failed", "rank_lost", True),
        ("CANCELLED", "over", "interrupted", "interrupted", False),
        ("PREEMPTED", "over", "interrupted", "interrupted", False),
        ("A_STATE_OF_TOMORROW", "over", "failed", None, False),
        (None, "gone", None, None, False),
    ],
)
def test_what_slurms_word_for_a_jobs_state_means(monkeypatch, handed, state, phase, status, kind, is_proven):
    queue(monkeypatch, state, "Resources")
    found = SlurmScheduler().look(handed)
    assert found.phase == phase
    assert state is None or found.detail == "job 7 on n[1-2] (Resources)"
    if phase in ("over", "gone"):
        Path(f"{handed.scheduler['output']}-7.out").write_text("0: hello\n")
        end = SlurmScheduler().gather(handed).end
        assert (end.status, end.verdict and end.verdict.kind, end.proven) == (status, kind, is_proven)


def test_a_job_that_never_ran_has_no_output_and_that_is_no_error(monkeypatch, handed):
    queue(monkeypatch, "CANCELLED")
    gathered = SlurmScheduler().gather(handed)
    assert [stream.name for stream in gathered.streams] == ["node-0", "node-1", "slurm"]
    assert all(list(stream.lines) == [] for stream in gathered.streams)


def test_the_newest_output_of_a_job_whose_id_nobody_knows_counts(monkeypatch, handed, tmp_path):
    monkeypatch.setattr(client, "find_by_name", lambda name, folder, index: None)
    for name in ("run-9_0.out", "run-12.out", "run-other-13.out"):
        (tmp_path / name).write_text(f"0: {name}\n")
    gathered = SlurmScheduler().gather(handed.with_scheduler(job=None))
    assert list(gathered.streams[0].lines) == [b"run-12.out\n"]


def test_a_job_of_another_name_is_left_alone(monkeypatch: pytest.MonkeyPatch, handed: Submission) -> None:
    """Also one that is over, or that nobody knows."""
    cancelled: list[str] = []
    monkeypatch.setattr(client, "cancel", cancelled.append)
    monkeypatch.setattr(client, "is_called", lambda *job: job == ("7", handed.fact("name", str)))
    queue(monkeypatch, "RUNNING")
    SlurmScheduler().cancel(handed)
    assert cancelled == ["7"]
    with pytest.raises(UsageError, match="job 7 is not yours or is not called"):
        SlurmScheduler().cancel(handed.with_scheduler(name="other"))
    queue(monkeypatch, "COMPLETED")
    SlurmScheduler().cancel(handed)
    queue(monkeypatch, None)
    with pytest.raises(UsageError, match="knows no job 7"):
        SlurmScheduler().cancel(handed)
    assert cancelled == ["7"]


@pytest.mark.parametrize("job", ["--help", "7; rm", "../../7", "7\x1b[0m", ""])
def test_what_is_no_job_of_slurm_is_not_asked_for(handed: Submission, job: str) -> None:
    for ask in (SlurmScheduler().look, SlurmScheduler().cancel, SlurmScheduler().gather):
        with pytest.raises(UsageError, match="is no job of Slurm") as caught:
            ask(handed.with_scheduler(job=job))
        assert str(caught.value).isprintable()


def test_an_output_of_any_length_is_kept_to_its_first_and_last_lines_and_every_event(monkeypatch, handed):
    monkeypatch.setattr(scheduler, "FIRST_BYTES", 100)
    monkeypatch.setattr(scheduler, "LAST_BYTES", 100)
    queue(monkeypatch, "COMPLETED")
    lines = [f"0: line {number:03}\n" + "0: ::suite:: {}\n" * (number % 10 == 0) for number in range(100)]
    Path(f"{handed.scheduler['output']}-7.out").write_text("".join(lines))
    kept = [line.decode() for line in SlurmScheduler().gather(handed).streams[0].lines]
    assert kept[0] == "line 000\n" and kept[-1] == "line 099\n"
    assert kept.count("::suite:: {}\n") == 10
    assert [line for line in kept if line.startswith("[suite: 693 bytes were cut here")]
    assert len(kept) == 10 + 12 + 1 + 11
