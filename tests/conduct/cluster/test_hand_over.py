"""Submitting documents: what is written down before and after, and what a refusal leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from suite.conduct.cluster.hand_over import hand_over
from suite.conduct.cluster.to_do import prepare
from suite.launch.cluster.launcher import Document, NodeSetup
from suite.launch.cluster.submission import Submission, read_submission, submission_path, submissions
from suite.launch.kubernetes.scheduler import KubernetesScheduler
from suite.launch.slurm.launcher import SlurmLauncher
from suite.launch.slurm.options import SlurmOptions
from suite.spec.base import UsageError
from tests.command import suite
from tests.launch.kubernetes.memory import MemoryCluster
from tests.launch.kubernetes.runs import IMAGE
from tests.launch.slurm.jobs import manifest

SMALL = ("--backend", "megatron", "--size", "1M", "--device", "cpu", "--gpus-per-node", "2", "--repeats", "2")


@pytest.fixture(autouse=True)
def _empty_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suite.launch.slurm.client.unfinished", lambda folders: [])


def slurm(root: Path, runs: int, **options: Any) -> tuple[SlurmLauncher, list[Document]]:
    """A launcher, and the documents of so many runs."""
    launcher = SlurmLauncher(SlurmOptions(**options), NodeSetup(python="python"))
    manifests = [manifest(2, 2, repeat, "cpu") for repeat in range(1, runs + 1)]
    return launcher, list(launcher.render(prepare(manifests, launcher.scheduler(), launcher.site), root))


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What sbatch was given; it answers 70, 71 ..."""
    given: list[str] = []

    def submit(script: str, *options: str) -> str:
        given.append(script)
        return str(69 + len(given))

    monkeypatch.setattr("suite.launch.slurm.scheduler.submit", submit)
    return given


def test_each_run_of_slurm_is_a_job(tmp_path: Path, scripts: list[str]) -> None:
    launcher, documents = slurm(tmp_path, 2)
    jobs = [each.scheduler["job"] for document in documents for each in hand_over(launcher, document, tmp_path)]
    assert jobs == ["70", "71"] and scripts == [document.text for document in documents]
    assert [launcher.where(each) for each in submissions(tmp_path)] == ["job 70", "job 71"]
    assert [each.scheduler["index"] for each in submissions(tmp_path)] == [None, None]


def test_runs_of_an_array_are_members_of_one_job(tmp_path: Path, scripts: list[str]) -> None:
    launcher, (document,) = slurm(tmp_path, 3, array=True, starter="srun")
    handed = hand_over(launcher, document, tmp_path)
    assert len(scripts) == 1
    jobs = {each.run_id: f"70_{index}" for index, each in enumerate(handed)}
    assert launcher.submitted_json(handed, {}) == {"jobs": jobs}
    assert {each.scheduler["starter"] for each in submissions(tmp_path)} == {"engine"}, "the word that files keep"


def test_what_is_refused_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "runs"
    launcher, (document,) = slurm(root, 1)
    seen: list[list[Submission]] = []

    def refuse(script: str, *options: str) -> str:
        seen.append(list(submissions(root)))
        raise UsageError("no")

    monkeypatch.setattr("suite.launch.slurm.scheduler.submit", refuse)
    with pytest.raises(UsageError, match="no"):
        hand_over(launcher, document, root)
    assert not root.exists()
    assert [each.run_id for each in seen[0]] == [document.name], "it could be found, had the driver died there"

    monkeypatch.setattr("suite.launch.slurm.scheduler.submit", lambda script, *options: "7")
    monkeypatch.setattr("suite.launch.slurm.client.find", lambda job: None)
    hand_over(launcher, document, root)
    monkeypatch.setattr("suite.launch.slurm.scheduler.submit", refuse)
    with pytest.raises(UsageError, match="no"):
        hand_over(launcher, document, root)
    assert read_submission(submission_path(root, document.name)).scheduler["job"] == "7"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> MemoryCluster:
    """Kubernetes in memory."""
    cluster = MemoryCluster("lab")
    monkeypatch.setattr("suite.launch.kubernetes.client.connect", lambda context, namespace: cluster)
    return cluster


def submitted(runs: Path, *more: str) -> Result:
    return suite("submit", "kubernetes", *SMALL, "--image", IMAGE, "--runs", runs, "--json", *more)


def test_detached_all_are_submitted_at_once(cluster: MemoryCluster, tmp_path: Path) -> None:
    done = submitted(tmp_path, "--detach")
    assert done.exit_code == 0
    body = json.loads(done.stdout)
    assert body["namespace"] == "lab" and set(body["runs"].values()) == {"submitted"}
    assert cluster.kinds() == ["ConfigMap"] * 2 + ["Job"] * 2 + ["Service"] * 2
    assert {objects["metadata"]["namespace"] for objects in cluster.objects.values()} == {"lab"}
    note, *lines = done.stderr.splitlines()
    assert [line.split()[-3:] for line in lines] == [["in", "namespace", "lab"]] * 2
    assert "measure each other" in note
    assert {each.scheduler["server"] for each in submissions(tmp_path)} == {cluster.server}
    assert {each.scheduler["settings"]["namespace"] for each in submissions(tmp_path)} == {"lab"}


def test_otherwise_each_is_waited_for_and_its_failure_is_the_exit_code(
    cluster: MemoryCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler = KubernetesScheduler(lambda context, namespace: cluster)  # type: ignore[arg-type, return-value]
    place = "suite.launch.kubernetes.launcher.KubernetesLauncher.scheduler"
    monkeypatch.setattr(place, staticmethod(lambda: scheduler))

    def fail_at_once(body: dict[str, Any], dry_run: bool) -> None:
        if body["kind"] == "Job":
            failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
            body["status"] = {"conditions": [failed]}

    cluster.on_create = fail_at_once
    done = submitted(tmp_path, "--repeats", "1")
    assert done.exit_code == 1, done.output
    assert set(json.loads(done.stdout)["runs"].values()) == {"failed"}
    assert "Failed: Job: Failed, DeadlineExceeded" in done.stderr
