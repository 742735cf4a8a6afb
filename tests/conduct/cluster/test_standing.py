"""Waiting for a run that a cluster has, while the cluster now and then does not answer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from suite.conduct.cluster import standing as clusters
from suite.conduct.cluster.looking import look
from suite.conduct.cluster.standing import Standing, wait_until_over
from suite.launch.cluster.registry import find_scheduler
from suite.launch.cluster.scheduler import SchedulerState
from suite.launch.cluster.submission import Submission
from suite.spec.base import UsageError
from tests.conduct.cluster.test_collect import submission
from tests.synthetic import synthetic_manifest

RUNNING, OVER = SchedulerState(phase="running", word="RUNNING"), SchedulerState(phase="over", word="COMPLETED")


class Answers:
    """A cluster's scheduler that gives one answer after another; text is a refusal."""

    def __init__(self, *answers: SchedulerState | str) -> None:
        self.left = list(answers)

    def look(self, submission: Submission) -> SchedulerState:
        answer = self.left.pop(0)
        if isinstance(answer, str):
            raise UsageError(answer)
        return answer

    def keep(self, submission: Submission) -> None:
        return


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Wait for a run of a cluster that answers so; the words that were seen."""

    def wait(*answers: SchedulerState | str) -> list[str]:
        scheduler = Answers(*answers)
        monkeypatch.setattr(clusters, "find_scheduler", lambda name: scheduler)
        seen: list[Standing] = []
        try:
            wait_until_over(tmp_path, submission(synthetic_manifest()), seen.append, poll_seconds=0.001)
        finally:
            assert scheduler.left == []
        return [f"{now.state.word} {now.state.detail}".strip() for now in seen]

    return wait


def test_a_controller_that_is_busy_for_a_while_does_not_end_the_wait(waited: Any) -> None:
    assert waited(RUNNING, "Socket timed out", "Socket timed out", RUNNING, OVER) == [
        *("RUNNING", "no answer Socket timed out", "RUNNING", "COMPLETED")
    ]


def test_a_cluster_that_cannot_be_asked_at_all_is_told_at_once(waited: Any) -> None:
    with pytest.raises(UsageError, match="there is no Slurm here"):
        waited("there is no Slurm here")


def test_patience_ends(waited: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(UsageError, match="away"):
        waited(RUNNING, "away")


@pytest.mark.parametrize(("launcher", "seconds"), [("kubernetes", 60), ("slurm", 180)])
def test_a_submission_without_an_answer_is_decided_after_what_its_cluster_may_take(
    launcher: str, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = find_scheduler(launcher)
    monkeypatch.setattr(scheduler, "look", lambda submission: SchedulerState(phase="gone", word="Deleted"))
    sent = {"launcher": launcher, "submitted": 1000.0, "sending": "mark"}
    unanswered = submission(synthetic_manifest()).model_copy(update=sent)

    def word(after: float) -> tuple[str, str]:
        monkeypatch.setattr(time, "time", lambda: 1000.0 + after)
        state = look(scheduler, unanswered)
        return state.phase, state.word

    assert word(seconds - 0.5) == ("pending", "sending")
    assert word(seconds) == ("gone", "not taken")
